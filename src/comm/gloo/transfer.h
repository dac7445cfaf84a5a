// One message between this rank and one peer, as a Gloo buffer if it is not small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gloo::transport {
class Context;
class UnboundBuffer;
}  // namespace gloo::transport

namespace lariat {

enum class TransferState : uint8_t { kDone, kInterrupted, kFailed };

class Transfer {
 public:
  // `slot` is the same on both sides. The memory is the caller's.
  Transfer(int32_t peer, bool send, const void* data, size_t bytes, uint64_t slot);
  Transfer(Transfer&&) noexcept;
  Transfer& operator=(Transfer&&) noexcept;
  // Waits for a read or write in progress; afterwards nobody touches the memory.
  ~Transfer();

  int32_t peer() const { return peer_; }  // world rank
  bool send() const { return send_; }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  uint64_t slot() const { return slot_; }
  bool done() const { return done_; }
  // Moved by other means than post().
  void set_done() { done_ = true; }

  // Hands it to Gloo. May throw whatever Gloo throws.
  void post(gloo::transport::Context& context);
  // Blocks until it is done or failed or interrupt() is called. Without a deadline: when a wait of Gloo's
  // times out, Gloo closes every connection, and the news of the failure could not be sent; Mesh interrupts
  // instead.
  TransferState wait();
  // Any thread. Ends a wait, or the next one, unless the transfer is done.
  void interrupt();
  // After kFailed: what Gloo said.
  const std::string& failure() const { return failure_; }

 private:
  int32_t peer_;
  bool send_;
  void* data_;
  size_t bytes_;
  uint64_t slot_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  bool done_ = false;
  std::string failure_;
};

}  // namespace lariat
