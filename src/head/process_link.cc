#include "head/process_link.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/control/control_client.h"
#include "head/child_process.h"

namespace lariat {
namespace {

// A folder of mode 0700, removed with what is in it.
class PrivateFolder {
 public:
  static Result<std::unique_ptr<PrivateFolder>> create(const std::string& root) {
    std::string path = root + "/lariat-XXXXXX";
    if (mkdtemp(path.data()) == nullptr)
      return make_error(Errc::kUnavailable,
                        fmt::format("cannot make a folder for sockets in {}: {}", root, strerror(errno)));
    return std::make_unique<PrivateFolder>(path);
  }
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  ~PrivateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  std::string address() const { return "unix:" + path_ + "/rank"; }

 private:
  const std::string path_;
};

class ProcessLink final : public RankLink {
 public:
  ProcessLink(std::unique_ptr<ChildProcess> child, std::unique_ptr<PrivateFolder> folder,
              RankLinkEvents events)
      : child_(std::move(child)), folder_(std::move(folder)), events_(std::move(events)) {}
  ~ProcessLink() override { end(std::chrono::milliseconds(0)); }

  void begin(std::chrono::milliseconds connect_timeout) {
    connector_ = std::thread([this, connect_timeout] { connect(connect_timeout); });
  }

  Status send(const ToRank& message) override {
    const std::lock_guard lock(mutex_);
    if (client_) return client_->send(message);
    if (ending_) return make_error(Errc::kUnavailable, "the rank has been ended");
    waiting_.push_back(message);
    return Ok{};
  }

  RankEnding end(std::chrono::milliseconds grace) override {
    ending_ = true;
    if (connector_.joinable()) connector_.join();
    // An orderly end lets a rank that is leaving go at once instead of waiting for its head to hang up.
    if (client_) client_->finish();
    const std::optional<ExitStatus> by_itself = child_->wait(grace);
    child_->kill();
    if (client_) client_->close();
    folder_.reset();
    return by_itself ? RankEnding{by_itself->text(), by_itself->exit_code()} : RankEnding{};
  }

  int64_t pid() const override { return child_->pid(); }

 private:
  void connect(std::chrono::milliseconds timeout) {
    ControlClientOptions options;
    options.address = folder_->address();
    options.connect_timeout = timeout;
    options.give_up = [this] { return ending_ || child_->poll().has_value(); };
    auto client = ControlClient::connect(options, {events_.on_message, events_.on_down});
    if (!client.ok()) {
      if (ending_) return;
      Error why = std::move(client).error();
      if (why.code == Errc::kCancelled)
        why = make_error(Errc::kUnavailable, "the process ended before it listened");
      return events_.on_down(std::move(why));
    }
    folder_.reset();  // a connected socket needs no name, and a killed head leaves none behind
    Status sent = Ok{};
    {
      const std::lock_guard lock(mutex_);
      client_ = std::move(client).value();
      for (const ToRank& message : waiting_) {
        if (sent.ok()) sent = client_->send(message);
      }
      waiting_.clear();
    }
    if (!sent.ok()) events_.on_down(sent.error());
  }

  const std::unique_ptr<ChildProcess> child_;
  std::unique_ptr<PrivateFolder> folder_;  // until connected
  const RankLinkEvents events_;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::unique_ptr<ControlClient> client_;
  std::vector<ToRank> waiting_;  // until connected
  std::thread connector_;
};

}  // namespace

Result<RankLinkFactory> make_process_ranks(ProcessRankOptions options) {
  if (options.socket_root.size() > kSocketRootBytesMax)
    return make_error(Errc::kInvalidArgument,
                      fmt::format("{} is too long a folder for sockets: {} bytes, at most {}",
                                  options.socket_root, options.socket_root.size(), kSocketRootBytesMax));
  return RankLinkFactory(
      [options = std::move(options)](int32_t rank, Epoch epoch,
                                     RankLinkEvents events) -> Result<std::unique_ptr<RankLink>> {
        LARIAT_ASSIGN(auto folder, PrivateFolder::create(options.socket_root));
        LARIAT_ASSIGN(auto child,
                      ChildProcess::spawn(options.path, options.args(rank, epoch, folder->address())));
        auto link = std::make_unique<ProcessLink>(std::move(child), std::move(folder), std::move(events));
        link->begin(options.connect_timeout);
        return std::unique_ptr<RankLink>(std::move(link));
      });
}

}  // namespace lariat
