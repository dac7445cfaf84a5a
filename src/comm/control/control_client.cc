#include "comm/control/control_client.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <thread>

#include "comm/control/codec.h"
#include "comm/control/grpc_log.h"
#include "comm/control/outbox.h"
#include "control.grpc.pb.h"

namespace lariat {
namespace {

constexpr size_t kUnreadMessagesMax = 4096;
constexpr std::chrono::milliseconds kConnectSlice{50};

std::shared_ptr<grpc::Channel> make_channel(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(static_cast<int>(kControlMessageBytesMax));
  args.SetMaxSendMessageSize(static_cast<int>(kControlMessageBytesMax));
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A channel of its own a rank and epoch: a pooled connection would outlive its rank.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
}

class GrpcControlClient final : public ControlClient {
 public:
  explicit GrpcControlClient(ControlClientHandlers handlers) : handlers_(std::move(handlers)) {}
  ~GrpcControlClient() override { close(); }

  Status start(const ControlClientOptions& options) {
    adopt_grpc_log();
    channel_ = make_channel(options.address);
    const auto deadline = std::chrono::steady_clock::now() + options.connect_timeout;
    while (!channel_->WaitForConnected(std::chrono::system_clock::now() + kConnectSlice)) {
      if (options.give_up && options.give_up())
        return make_error(Errc::kCancelled, fmt::format("gave up connecting to {}", options.address));
      if (std::chrono::steady_clock::now() >= deadline)
        return make_error(Errc::kDeadlineExceeded,
                          fmt::format("nothing listens at {} after {} ms", options.address,
                                      options.connect_timeout.count()));
    }
    stub_ = control_v1::Control::NewStub(channel_);
    stream_ = stub_->Session(&context_);
    reader_ = std::thread([this] { read_all(); });
    return Ok{};
  }

  Status send(const ToRank& message) override {
    control_v1::ToRank pb;
    LARIAT_RETURN_IF_ERROR(encode(message, pb));
    return outbox_.push(std::move(pb));
  }

  void finish() override { outbox_.finish(); }

  void close() override {
    if (closed_.exchange(true)) return;
    outbox_.close();
    context_.TryCancel();
    if (reader_.joinable()) reader_.join();
  }

 private:
  void read_all() {
    std::thread writer([this] {
      while (auto message = outbox_.pop()) {
        if (!stream_->Write(*message)) return;
      }
      stream_->WritesDone();
    });
    Error why = make_error(Errc::kUnavailable, "the rank closed the session");
    control_v1::FromRank message;
    while (stream_->Read(&message)) {
      auto decoded = decode(message);
      if (!decoded.ok()) {
        why = decoded.error().in("from the rank");
        context_.TryCancel();
        break;
      }
      if (closed_) break;  // close() has cancelled the stream
      handlers_.on_message(std::move(decoded).value());
    }
    outbox_.close();
    writer.join();
    const grpc::Status status = stream_->Finish();
    if (why.code == Errc::kUnavailable && !status.ok() && status.error_code() != grpc::StatusCode::CANCELLED)
      why.message = fmt::format("the session with the rank broke: {}", status.error_message());
    if (!closed_) handlers_.on_closed(why);
  }

  using Stream = grpc::ClientReaderWriter<control_v1::ToRank, control_v1::FromRank>;

  ControlClientHandlers handlers_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<control_v1::Control::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
  Outbox<control_v1::ToRank> outbox_{kUnreadMessagesMax};
  std::atomic<bool> closed_{false};
  std::thread reader_;
};

}  // namespace

Result<std::unique_ptr<ControlClient>> ControlClient::connect(const ControlClientOptions& options,
                                                              ControlClientHandlers handlers) {
  auto client = std::make_unique<GrpcControlClient>(std::move(handlers));
  LARIAT_RETURN_IF_ERROR(client->start(options));
  return std::unique_ptr<ControlClient>(std::move(client));
}

}  // namespace lariat
