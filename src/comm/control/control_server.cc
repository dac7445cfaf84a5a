#include "comm/control/control_server.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "comm/control/codec.h"
#include "comm/control/grpc_log.h"
#include "comm/control/outbox.h"
#include "control.grpc.pb.h"

namespace lariat {
namespace {

constexpr size_t kUnreadMessagesMax = 4096;
constexpr std::chrono::milliseconds kStopTimeout{500};

class GrpcControlServer final : public ControlServer, private control_v1::Control::Service {
 public:
  explicit GrpcControlServer(ControlServerHandlers handlers) : handlers_(std::move(handlers)) {}
  ~GrpcControlServer() override { stop(); }

  Status start(const std::string& address) {
    adopt_grpc_log();
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(static_cast<int>(kControlMessageBytesMax));
    builder.SetMaxSendMessageSize(static_cast<int>(kControlMessageBytesMax));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr)
      return make_error(Errc::kUnavailable, fmt::format("cannot listen for the head at {}", address));
    return Ok{};
  }

  Status send(const FromRank& message) override {
    control_v1::FromRank pb;
    LARIAT_RETURN_IF_ERROR(encode(message, pb));
    const std::shared_ptr<Head> session = current();
    if (session == nullptr) return make_error(Errc::kUnavailable, "no head is connected");
    return session->outbox.push(std::move(pb));
  }

  bool flush(std::chrono::milliseconds timeout) override {
    const std::shared_ptr<Head> session = current();
    return session != nullptr && session->outbox.wait_written(timeout);
  }

  void stop() override {
    if (stopped_.exchange(true)) return;
    if (const auto session = current()) session->outbox.close();
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + kStopTimeout);
  }

 private:
  struct Head {
    Outbox<control_v1::FromRank> outbox{kUnreadMessagesMax};
  };
  using Stream = grpc::ServerReaderWriter<control_v1::FromRank, control_v1::ToRank>;

  std::shared_ptr<Head> current() {
    const std::lock_guard lock(mutex_);
    return session_;
  }

  grpc::Status Session(grpc::ServerContext* context, Stream* stream) override {
    const auto session = std::make_shared<Head>();
    {
      const std::lock_guard lock(mutex_);
      if (session_ != nullptr)
        return {grpc::StatusCode::ALREADY_EXISTS, "this rank already has a head; it serves one at a time"};
      session_ = session;
    }
    std::thread writer([&] {
      while (auto message = session->outbox.pop()) {
        if (!stream->Write(*message)) break;
      }
    });
    const Error why = read_all(context, stream);
    session->outbox.close();
    context->TryCancel();
    writer.join();
    {
      const std::lock_guard lock(mutex_);
      session_ = nullptr;
    }
    if (!stopped_) handlers_.on_closed(why);
    return grpc::Status::OK;
  }

  Error read_all(grpc::ServerContext* context, Stream* stream) {
    control_v1::ToRank message;
    while (stream->Read(&message)) {
      auto decoded = decode(message);
      if (!decoded.ok()) return decoded.error().in("from the head");
      if (stopped_) break;
      handlers_.on_message(std::move(decoded).value());
    }
    return make_error(Errc::kUnavailable,
                      context->IsCancelled() ? "the head's session broke" : "the head closed the session");
  }

  ControlServerHandlers handlers_;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::shared_ptr<Head> session_;
};

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::listen(const std::string& address,
                                                             ControlServerHandlers handlers) {
  auto server = std::make_unique<GrpcControlServer>(std::move(handlers));
  LARIAT_RETURN_IF_ERROR(server->start(address));
  return std::unique_ptr<ControlServer>(std::move(server));
}

}  // namespace lariat
