// Parts of a test that are real processes, report how they fared and cannot outlive it. For tests only.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lariat::test {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "lariat-test-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);  // mode 0700
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class Processes {
 public:
  // The body's string is its report; by custom "" means that all was as it should be.
  using Body = std::function<std::string()>;

  Processes() = default;
  ~Processes() {
    for (const Child& c : children_) {
      if (!c.running) continue;
      kill(c.pid, SIGKILL);  // wakes a stopped one too
      waitpid(c.pid, nullptr, 0);
    }
    for (const Child& c : children_) close(c.pipe);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // The test's process has no threads when it forks.
  size_t start(const Body& body) {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    const pid_t pid = fork();
    EXPECT_GE(pid, 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string report = body();
      if (!report.empty() && write(fds[1], report.data(), report.size()) < 0) _exit(3);
      _exit(0);
    }
    close(fds[1]);
    children_.push_back({pid, fds[0], true});
    return children_.size() - 1;
  }

  pid_t pid(size_t child) const { return children_[child].pid; }

  // What the child reported, and " (signal 9)" or " (exit 3)" if it did not end well, or " (hangs)".
  std::string report(size_t child, std::chrono::seconds limit = std::chrono::seconds(60)) {
    Child& c = children_[child];
    const auto until = std::chrono::steady_clock::now() + limit;
    std::string text;
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now())
              .count();
      pollfd p{c.pipe, POLLIN, 0};
      if (left <= 0 || poll(&p, 1, static_cast<int>(left)) <= 0) return text + " (hangs)";
      char buffer[4096];
      const ssize_t n = read(c.pipe, buffer, sizeof buffer);
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
    }
    int status = 0;
    waitpid(c.pid, &status, 0);
    c.running = false;
    if (WIFSIGNALED(status)) text += " (signal " + std::to_string(WTERMSIG(status)) + ")";
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
      text += " (exit " + std::to_string(WEXITSTATUS(status)) + ")";
    return text;
  }

 private:
  struct Child {
    pid_t pid;
    int pipe;
    bool running;
  };
  std::vector<Child> children_;
};

}  // namespace lariat::test
