#include "worker/worker_main.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <latch>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "comm/control/control_server.h"
#include "worker/stack_dump.h"

namespace lariat {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{250};
constexpr std::chrono::milliseconds kLastWordsTimeout{1000};

int64_t resident_bytes() {
  const auto statm = read_file("/proc/self/statm", 4096);
  long long total = 0, resident = 0;
  if (!statm.ok() || std::sscanf(statm->c_str(), "%lld %lld", &total, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

// A head that hangs up, or goes, does not cut the last words of a rank that is stuck short by more than this.
constexpr std::chrono::milliseconds kStacksTimeout{2000};
std::atomic<bool> telling_stacks{false};

[[noreturn]] void end_now(int code, const std::string& why) {
  if (telling_stacks) std::this_thread::sleep_for(kStacksTimeout);
  log_error("{}", why);
  std::fflush(nullptr);
  _exit(code);
}

[[noreturn]] void orphaned(const std::string& why) {
  end_now(kExitFailed, why + "; this rank ends");
}

// Beats for the head and notices when there is none.
class Monitor {
 public:
  Monitor(const WorkerOptions& options, RankCore& core, ControlServer& server)
      : options_(options), core_(core), server_(server), thread_([this] { watch(); }) {}
  ~Monitor() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void watch() {
    const auto started = Clock::now();
    auto next_beat = started;
    bool had_session = false;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::min(kWatchInterval, options_.heartbeat_interval),
                              [&] { return stop_; })) {
      if (options_.head_pid != 0 && getppid() != options_.head_pid) orphaned("the head process is gone");
      const auto now = Clock::now();
      if (now >= next_beat) {
        next_beat = now + options_.heartbeat_interval;
        Heartbeat beat = core_.heartbeat();
        beat.rss_bytes = resident_bytes();
        // Before the start there is no epoch to beat in.
        if (beat.epoch != Epoch()) had_session = server_.send(beat).ok() || had_session;
      }
      if (!had_session && now - started > options_.session_timeout)
        end_now(kExitFailed, "no head has begun a session in time; this rank ends");
    }
  }

  const WorkerOptions& options_;
  RankCore& core_;
  ControlServer& server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

void end_stalled(const std::string& why) {
  telling_stacks = true;
  log_error("stalled: {}; where every thread is:\n{}", why, dump_all_stacks());
  log_error("stalled: this rank ends with exit code 70");
  std::fflush(nullptr);
  _exit(kExitStalled);
}

int run_worker(const WorkerOptions& options, ExecutorFactory factory) {
  signal(SIGPIPE, SIG_IGN);
  if (options.head_pid != 0) {
    // For a rank that is stopped, or whose threads are starved, when the head goes.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != options.head_pid) orphaned("the head process went before this rank began");
  }
  std::unique_ptr<ControlServer> server;
  std::atomic<bool> ending{false};
  const auto send = [&](const FromRank& message) {
    // After these the head may hang up before this process has gone.
    const auto* failure = std::get_if<RankFailure>(&message);
    if (failure != nullptr && failure->kind != FailureKind::kRefused) ending = true;
    if (const Status sent = server->send(message); !sent.ok()) {
      log_warn("not sent to the head: {}", sent.error().message);
    }
  };
  const auto on_stall = [](const std::string& what, std::chrono::milliseconds silent) {
    end_stalled(fmt::format("no progress in {} for {} ms", what, silent.count()));
  };
  RankCore core(options.rank, std::move(factory), {send, on_stall});
  const auto on_closed = [&](const Error& why) {
    if (!ending) orphaned(why.message);
  };
  // A head may speak before listen() has returned the server that answers go through.
  std::latch server_is_set(1);
  const auto on_message = [&](ToRank message) {
    server_is_set.wait();
    if (std::holds_alternative<ShutdownRank>(message)) ending = true;
    core.handle(std::move(message));
  };
  auto listening = ControlServer::listen(options.address, {on_message, on_closed});
  if (!listening.ok()) {
    log_error("{}", listening.error().message);
    return kExitFailed;
  }
  server = std::move(listening).value();
  server_is_set.count_down();
  int code = 0;
  {
    const Monitor monitor(options, core, *server);
    code = core.run();
  }
  ending = true;
  server->flush(kLastWordsTimeout);
  server->stop();
  return code;
}

}  // namespace lariat
