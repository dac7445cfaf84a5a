#include "head/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

namespace lariat {
namespace {

constexpr std::chrono::milliseconds kPollInterval{5};

// posix_spawn's two descriptions, freed together.
struct SpawnSetup {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnSetup() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
};

void describe_child(SpawnSetup& setup) {
  posix_spawn_file_actions_addopen(&setup.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&setup.files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&setup.files, STDERR_FILENO + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&setup.attributes, &none);
  posix_spawnattr_setsigdefault(&setup.attributes, &all);
  posix_spawnattr_setpgroup(&setup.attributes, 0);
  posix_spawnattr_setflags(&setup.attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

}  // namespace

std::string ExitStatus::text() const {
  if (WIFEXITED(wait_status)) return fmt::format("exit code {}", WEXITSTATUS(wait_status));
  if (WIFSIGNALED(wait_status))
    return fmt::format("signal {} ({})", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
  return fmt::format("wait status {}", wait_status);
}

std::optional<int> ExitStatus::exit_code() const {
  return WIFEXITED(wait_status) ? std::optional(WEXITSTATUS(wait_status)) : std::nullopt;
}

Result<std::unique_ptr<ChildProcess>> ChildProcess::spawn(const std::string& path,
                                                          std::vector<std::string> args) {
  SpawnSetup setup;
  describe_child(setup);
  std::vector<char*> argv;
  argv.reserve(args.size() + 1);
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (const int error =
          posix_spawn(&pid, path.c_str(), &setup.files, &setup.attributes, argv.data(), environ);
      error != 0)
    return make_error(Errc::kUnavailable, fmt::format("cannot start {}: {}", path, strerror(error)));
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid));
}

ChildProcess::~ChildProcess() {
  kill();
}

std::optional<ExitStatus> ChildProcess::poll() {
  const std::lock_guard lock(mutex_);
  int status = 0;
  if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) ended_ = ExitStatus{status};
  return ended_;
}

std::optional<ExitStatus> ChildProcess::wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    auto status = poll();
    if (status || std::chrono::steady_clock::now() >= deadline) return status;
    std::this_thread::sleep_for(kPollInterval);
  }
}

ExitStatus ChildProcess::kill() {
  const std::lock_guard lock(mutex_);
  int status = 0;
  if (!ended_) {
    ::kill(pid_, SIGKILL);  // ours until reaped, so the number cannot be another's
    pid_t reaped = 0;
    do {
      reaped = waitpid(pid_, &status, 0);
    } while (reaped < 0 && errno == EINTR);
    ended_ = ExitStatus{status};
  }
  return *ended_;
}

}  // namespace lariat
