#include "head/process_link.h"

#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <thread>

#include "comm/control/control_client.h"
#include "head/child_process.h"

namespace lariat {
namespace {

// A folder of mode 0700, removed with what is in it.
class PrivateFolder {
 public:
  static Result<std::shared_ptr<PrivateFolder>> create(const std::string& root) {
    std::string path = root + "/lariat-XXXXXX";
    if (mkdtemp(path.data()) == nullptr)
      return make_error(Errc::kUnavailable,
                        fmt::format("cannot make a folder for sockets in {}: {}", root, strerror(errno)));
    return std::make_shared<PrivateFolder>(path);
  }
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  ~PrivateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

class ProcessLink final : public RankLink {
 public:
  ProcessLink(std::unique_ptr<ChildProcess> child, std::string socket, std::shared_ptr<PrivateFolder> folder,
              RankLinkEvents events)
      : child_(std::move(child)),
        socket_(std::move(socket)),
        folder_(std::move(folder)),
        events_(std::move(events)) {}
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

  std::string end(std::chrono::milliseconds grace) override {
    ending_ = true;
    if (connector_.joinable()) connector_.join();
    child_->wait(grace);
    const ExitStatus status = child_->kill();
    if (client_) client_->close();
    std::error_code ignored;
    std::filesystem::remove(socket_, ignored);
    return status.text();
  }

  int64_t pid() const override { return child_->pid(); }

 private:
  void connect(std::chrono::milliseconds timeout) {
    ControlClientOptions options;
    options.address = "unix:" + socket_;
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
  const std::string socket_;
  const std::shared_ptr<PrivateFolder> folder_;
  const RankLinkEvents events_;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::unique_ptr<ControlClient> client_;
  std::vector<ToRank> waiting_;  // until connected
  std::thread connector_;
};

}  // namespace

Result<RankLinkFactory> make_process_ranks(ProcessRankOptions options) {
  LARIAT_ASSIGN(std::shared_ptr<PrivateFolder> folder, PrivateFolder::create(options.socket_root));
  return RankLinkFactory([options = std::move(options), folder](
                             int32_t rank, Epoch epoch,
                             RankLinkEvents events) -> Result<std::unique_ptr<RankLink>> {
    const std::string socket = fmt::format("{}/r{}e{}", folder->path(), rank, epoch.get());
    LARIAT_ASSIGN(auto child, ChildProcess::spawn(options.path, options.args(rank, epoch, "unix:" + socket)));
    auto link = std::make_unique<ProcessLink>(std::move(child), socket, folder, std::move(events));
    link->begin(options.connect_timeout);
    return std::unique_ptr<RankLink>(std::move(link));
  });
}

}  // namespace lariat
