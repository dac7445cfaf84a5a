#include "comm/gloo/transfer.h"

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <exception>

namespace lariat {
namespace {

constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

}  // namespace

Transfer::Transfer(int32_t peer, bool send, const void* data, size_t bytes, uint64_t slot)
    : peer_(peer), send_(send), data_(const_cast<void*>(data)), bytes_(bytes), slot_(slot) {}
Transfer::Transfer(Transfer&&) noexcept = default;
Transfer& Transfer::operator=(Transfer&&) noexcept = default;
Transfer::~Transfer() = default;

void Transfer::post(gloo::transport::Context& context) {
  buffer_ = context.createUnboundBuffer(data_, bytes_);
  if (send_) {
    buffer_->send(peer_, slot_, 0, bytes_);
  } else {
    buffer_->recv(peer_, slot_, 0, bytes_);
  }
}

TransferState Transfer::wait() {
  if (done_) return TransferState::kDone;
  try {
    done_ = send_ ? buffer_->waitSend(nullptr, kForever) : buffer_->waitRecv(nullptr, kForever);
  } catch (const std::exception& e) {
    failure_ = e.what();
    return TransferState::kFailed;
  }
  return done_ ? TransferState::kDone : TransferState::kInterrupted;
}

void Transfer::interrupt() {
  if (send_) {
    buffer_->abortWaitSend();
  } else {
    buffer_->abortWaitRecv();
  }
}

}  // namespace lariat
