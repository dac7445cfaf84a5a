#include "app/private_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "base/test_processes.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

TEST(PrivateDir, IsOursAloneAndGoesWithItsOwnerAndAllInIt) {
  const test::TempDir root;
  fs::path path;
  {
    auto dir = PrivateDir::create(root.path());
    ASSERT_TRUE(dir.ok()) << dir.error().message;
    path = dir->path();
    struct stat st{};
    ASSERT_EQ(stat(path.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0700u);
    std::ofstream(path / "file") << "text";
    const PrivateDir moved = std::move(dir).value();
    EXPECT_TRUE(fs::exists(path / "file"));
  }
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(PrivateDir, WhatAKilledOwnerLeftGoesWithTheNextStartAndNothingElse) {
  const test::TempDir root;
  test::Processes owner;
  int told[2];
  ASSERT_EQ(pipe2(told, O_CLOEXEC), 0);
  owner.start([&]() -> std::string {
    const auto dir = PrivateDir::create(root.path());
    std::ofstream(dir->path() / "file") << "text";
    if (write(told[1], "x", 1) != 1) return "no pipe";
    while (true) pause();
  });
  char x = 0;
  ASSERT_EQ(read(told[0], &x, 1), 1);
  close(told[0]);
  close(told[1]);
  // Names of others, and of ours that others may enter, are not touched.
  for (const char* name : {"lariat-group-abc", "lariat-group-abcdefg", "lariat-other-abcdef"})
    fs::create_directory(root.path() / name);
  fs::create_directory(root.path() / "lariat-group-public");
  ASSERT_EQ(chmod((root.path() / "lariat-group-public").c_str(), 0755), 0);
  const auto count = [&] {
    return std::distance(fs::directory_iterator(root.path()), fs::directory_iterator());
  };
  {
    const auto beside = PrivateDir::create(root.path());
    ASSERT_TRUE(beside.ok());
    EXPECT_EQ(count(), 6) << "the owner lives";
  }
  kill(owner.pid(0), SIGKILL);
  EXPECT_NE(owner.report(0), "");
  const auto next = PrivateDir::create(root.path());
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(count(), 5);
}

TEST(PrivateDir, ManyStartsAtOnceEachHaveTheirs) {
  const test::TempDir root;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto dir = PrivateDir::create(root.path());
        if (!dir.ok() || !fs::is_directory(dir->path())) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(PrivateDir, AFolderThatCannotBeMadeIsAnError) {
  EXPECT_EQ(PrivateDir::create("/no/such/folder").error().code, Errc::kUnavailable);
}

}  // namespace
}  // namespace lariat
