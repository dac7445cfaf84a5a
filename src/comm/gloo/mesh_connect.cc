// How a mesh forms: addresses through the meeting's folder, connections pair by pair, then a hello that shows
// that all ranks mean the same layout.
#include <fmt/core.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <thread>

#include "comm/gloo/meeting.h"
#include "comm/gloo/mesh.h"
#include "comm/gloo/obituary.h"

namespace lariat {
namespace {

struct Hello {
  char magic[8] = {'L', 'A', 'R', 'I', 'A', 'T', 'G', '1'};
  int32_t rank = 0;
  int32_t tp = 0;
  int32_t cp = 0;
  int32_t duplicates = 0;
};

// Gloo writes to sockets with plain writev: a peer that died would end this process. A handler that is there
// stays.
void ignore_sigpipe() {
  struct sigaction now{};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
    (void)std::signal(SIGPIPE, SIG_IGN);
}

// Gloo's connect() sleeps until its own timeout. This ends it by closing the connections, when the time is
// over or the caller has cancelled.
class ConnectGuard {
 public:
  // `close` closes all of them.
  ConnectGuard(std::function<void()> close, Deadline deadline, const std::atomic<bool>* cancelled)
      : thread_([=, this] {
          while (!formed_) {
            if ((cancelled && cancelled->load()) || CommClock::now() >= deadline) {
              ended_ = true;
              close();
              return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }) {}
  ~ConnectGuard() { end(); }
  // True: it had to close the connections.
  bool end() {
    formed_ = true;
    if (thread_.joinable()) thread_.join();
    return ended_;
  }
  bool ended() const { return ended_; }

 private:
  std::atomic<bool> formed_{false}, ended_{false};
  std::thread thread_;
};

}  // namespace

Result<std::shared_ptr<Mesh>> Mesh::connect(const GlooOptions& options) {
  const int32_t world = options.layout.world();
  const int32_t rank = options.rank.get();
  std::shared_ptr<Mesh> mesh(new Mesh(world, rank));
  if (world == 1) return mesh;
  ignore_sigpipe();
  const Deadline deadline = CommClock::now() + options.connect_timeout;
  LARIAT_ASSIGN(Meeting meeting, Meeting::create(options.store_dir, options.prefix, rank));
  const std::filesystem::path board = meeting.path("waits");
  const std::filesystem::path mail = meeting.path("mail");
  // When it forms, all have mapped the files before their hello; when it fails, nobody needs them.
  struct Unlink {
    const std::filesystem::path& path;
    ~Unlink() { ::unlink(path.c_str()); }
  } const unlink_board{board}, unlink_mail{mail};
  LARIAT_ASSIGN(mesh->board_, WaitBoard::open(board, world, rank));
  LARIAT_ASSIGN(mesh->mail_, Mailbox::open(mail, world, rank));
  LARIAT_RETURN_IF_ERROR(mesh->open_connections(options, meeting, deadline));
  LARIAT_RETURN_IF_ERROR(mesh->agree(options, deadline));
  return mesh;
}

namespace {

// Threads started while it lives are SCHED_BATCH: woken, they do not push the running thread off its core.
// Gloo's own thread must not push off a thread that posts: that one holds the connection's lock, and Gloo's,
// which only tries it, spins on epoll for a whole time slice, on the core the other needs. A thread that
// waits for a message leaves its core, so messages are as prompt as before. If the policy cannot be set, only
// speed is lost.
class YieldingThreads {
 public:
  YieldingThreads() : known_(pthread_getschedparam(pthread_self(), &policy_, &param_) == 0) {
    const sched_param none{};
    if (known_ && policy_ == SCHED_OTHER) (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
  }
  ~YieldingThreads() {
    if (known_ && policy_ == SCHED_OTHER) (void)pthread_setschedparam(pthread_self(), policy_, &param_);
  }
  YieldingThreads(const YieldingThreads&) = delete;
  YieldingThreads& operator=(const YieldingThreads&) = delete;

 private:
  int policy_ = SCHED_OTHER;
  sched_param param_{};
  bool known_;
};

}  // namespace

Status Mesh::open_connections(const GlooOptions& options, Meeting& meeting, Deadline deadline) {
  std::vector<std::vector<char>> addresses(static_cast<size_t>(world_));
  try {
    gloo::transport::tcp::attr attr;
    attr.hostname = options.hostname;
    {
      const YieldingThreads yielding;
      device_ = gloo::transport::tcp::CreateDevice(attr);
    }
    for (auto* context : {&context_, &news_context_}) {
      *context = device_->createContext(rank_, world_);
      (*context)->setTimeout(options.connect_timeout);
      for (int32_t p = 0; p < world_; ++p) {
        if (p == rank_) continue;
        const std::vector<char> address = (*context)->createPair(p)->address().bytes();
        std::vector<char>& both = addresses[static_cast<size_t>(p)];
        both.insert(both.end(), address.begin(), address.end());
      }
    }
  } catch (const std::exception& e) {
    return make_error(Errc::kUnavailable, fmt::format("cannot listen on {}: {}", options.hostname, e.what()));
  }
  LARIAT_RETURN_IF_ERROR(meeting.publish(addresses));
  return connect_pairs(options, meeting, deadline);
}

Status Mesh::connect_pairs(const GlooOptions& options, const Meeting& meeting, Deadline deadline) {
  const std::atomic<bool>* cancelled = options.cancelled;
  const auto close = [this] {
    for (int32_t p = 0; p < world_; ++p) {
      if (p == rank_) continue;
      context_->getPair(p)->close();
      news_context_->getPair(p)->close();
    }
  };
  ConnectGuard guard(close, deadline, cancelled);
  for (int32_t p = 0; p < world_; ++p) {
    if (p == rank_) continue;
    LARIAT_ASSIGN(const std::vector<char> both, meeting.find(p, deadline, cancelled));
    const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
    std::string problem;
    try {
      context_->getPair(p)->connect({both.begin(), middle});
      news_context_->getPair(p)->connect({middle, both.end()});
    } catch (const std::exception& e) {
      problem = e.what();
    }
    if (guard.ended()) {
      if (cancelled && cancelled->load()) return make_error(Errc::kCancelled, "forming was cancelled");
      return make_error(Errc::kDeadlineExceeded, fmt::format("rank {} did not connect in time", p),
                        rank_name(p));
    }
    if (!problem.empty()) {
      return make_error(Errc::kUnavailable, fmt::format("cannot connect to rank {}: {}", p, problem),
                        rank_name(p));
    }
  }
  if (guard.end()) return make_error(Errc::kDeadlineExceeded, "the group formed too late");
  try {
    lookout_ = std::make_unique<Lookout>(*news_context_, *context_, world_, rank_, options.on_blamed);
  } catch (const std::exception& e) {
    return make_error(Errc::kUnavailable, fmt::format("a rank went while forming: {}", e.what()));
  }
  return Ok{};
}

Status Mesh::agree(const GlooOptions& options, Deadline deadline) {
  const Hello mine{
      .rank = rank_, .tp = options.layout.tp, .cp = options.layout.cp, .duplicates = options.duplicates};
  std::vector<Hello> theirs(static_cast<size_t>(world_));
  std::vector<Transfer> transfers;
  for (const bool send : {false, true}) {
    for (int32_t p = 0; p < world_; ++p) {
      if (p == rank_) continue;
      const void* memory = send ? &mine : &theirs[static_cast<size_t>(p)];
      transfers.emplace_back(p, send, memory, sizeof(Hello), kHelloSlot);
    }
  }
  LARIAT_RETURN_IF_ERROR(post(transfers));
  LARIAT_RETURN_IF_ERROR(wait(transfers, deadline, [] { return std::string("the hello of a new group"); }));
  for (int32_t p = 0; p < world_; ++p) {
    if (p == rank_) continue;
    const Hello& hello = theirs[static_cast<size_t>(p)];
    const bool same = std::memcmp(hello.magic, mine.magic, sizeof mine.magic) == 0 && hello.rank == p &&
                      hello.tp == mine.tp && hello.cp == mine.cp && hello.duplicates == mine.duplicates;
    if (same) continue;
    die(make_error(
        Errc::kInternal,
        fmt::format(
            "rank {} forms tp={},cp={} with {} duplicates as rank {}; rank {} forms tp={},cp={} with {}", p,
            hello.tp, hello.cp, hello.duplicates, hello.rank, rank_, mine.tp, mine.cp, mine.duplicates),
        rank_name(p)));
    return death();
  }
  return Ok{};
}

}  // namespace lariat
