#include "weights/packed_store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace lariat {
namespace {

PackedStore filled(const PackedStore::Options& options) {
  PackedStore store(options);
  for (const auto& [name, bytes] : {std::pair{"a", 100}, {"b", 64}, {"big", 1 << 20}}) {
    auto p = store.reserve(name, static_cast<size_t>(bytes));
    EXPECT_TRUE(p.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*p) % Buffer::kAlign, 0u);
    std::memset(*p, name[0], static_cast<size_t>(bytes));
  }
  store.seal();
  return store;
}

TEST(PackedStore, CountsAndFinds) {
  const PackedStore store = filled({});
  EXPECT_EQ(store.bytes(), 128u + 64u + (1u << 20));
  EXPECT_EQ(store.find("a").size(), 100u);
  EXPECT_EQ(store.find("a")[99], std::byte{'a'});
  EXPECT_EQ(store.find("big")[5000], std::byte{'b'});
  EXPECT_TRUE(store.find("c").empty());
}

TEST(PackedStore, HintGivesOneBuffer) {
  EXPECT_EQ(filled({.shared = true, .capacity_hint = 2 << 20}).fds().size(), 1u);
  EXPECT_EQ(filled({.shared = true}).fds().size(), 2u);
}

TEST(PackedStoreDeathTest, SealedMemoryIsReadOnly) {
  PackedStore store(PackedStore::Options{});
  std::byte* p = *store.reserve("w", 64);
  *p = std::byte{1};
  store.seal();
  EXPECT_DEATH(*p = std::byte{2}, "");
  EXPECT_DEATH((void)store.reserve("v", 64), "after seal");
}

// A forked child knows nothing of the parent's objects but the descriptors and the text, as a rank would.
TEST(PackedStore, AnotherProcessMapsTheSamePages) {
  const PackedStore store = filled({.shared = true});
  const std::vector<int> fds = store.fds();
  const std::string table = store.table();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto opened = PackedStore::open(fds, table);
    if (!opened.ok()) _exit(1);
    if (opened->bytes() != store.bytes() || opened->size() != 3) _exit(2);
    for (const char* name : {"a", "b", "big"}) {
      const auto mine = opened->find(name), theirs = store.find(name);
      if (mine.data() == theirs.data() || mine.size() != theirs.size()) _exit(3);
      if (std::memcmp(mine.data(), theirs.data(), mine.size()) != 0) _exit(4);
    }
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Shared is shared: a change through one mapping is seen in all, so there is one copy of the pages.
TEST(PackedStore, OneCopy) {
  const PackedStore store = filled({.shared = true});
  const std::vector<int> fds = store.fds();
  const auto other = PackedStore::open(fds, store.table());
  ASSERT_TRUE(other.ok());
  ASSERT_NE(other->find("a").data(), store.find("a").data());
  const std::byte patch{7};
  ASSERT_EQ(pwrite(fds[0], &patch, 1, 10), 1);
  EXPECT_EQ(other->find("a")[10], patch);
  EXPECT_EQ(store.find("a")[10], patch);
}

TEST(PackedStore, TableThatDoesNotFit) {
  const PackedStore store = filled({.shared = true, .capacity_hint = 2 << 20});
  const std::vector<int> fds = store.fds();
  const std::string size = std::to_string(2 << 20);
  for (const std::string& table : {
           std::string(""),
           std::string("[]"),
           std::string(R"({"buffers":[],"entries":{}})"),
           std::string(R"({"buffers":[99999999999],"entries":{}})"),
           std::string(R"({"buffers":[-1],"entries":{}})"),
           std::string(R"({"buffers":[0],"entries":{}})"),
           R"({"buffers":[)" + size + R"(],"entries":{"a":[1,0,64]}})",
           R"({"buffers":[)" + size + R"(],"entries":{"a":[0,2097152,64]}})",
           R"({"buffers":[)" + size + R"(],"entries":{"a":[0,64,2097152]}})",
           R"({"buffers":[)" + size + R"(],"entries":{"a":[0,18446744073709551552,128]}})",
           R"({"buffers":[)" + size + R"(],"entries":{"a":[0,1,64]}})",
           R"({"buffers":[)" + size + R"(],"entries":{"a":[0,64]}})",
       }) {
    EXPECT_FALSE(PackedStore::open(fds, table).ok()) << table;
  }
  EXPECT_TRUE(PackedStore::open(fds, R"({"buffers":[)" + size + R"(],"entries":{"a":[0,0,64]}})").ok());
}

}  // namespace
}  // namespace lariat
