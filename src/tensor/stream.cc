#include "tensor/stream.h"

#include "base/check.h"

namespace lariat {

std::unique_ptr<Stream> Stream::cpu(int threads) {
  return std::unique_ptr<Stream>(new Stream(threads));
}

Stream::Stream(int threads)
    : pool_(std::make_unique<ThreadPool>(threads)), scratch_(static_cast<size_t>(threads)) {}

std::byte* Stream::grow(Buffer& buffer, size_t bytes) {
  if (buffer.size() < bytes) {
    buffer = Buffer();
    auto grown = Buffer::allocate(bytes);
    LARIAT_CHECK(grown.ok(), "scratch: {}", grown.error().message);
    buffer = std::move(grown).value();
  }
  return buffer.data();
}

std::byte* Stream::scratch(int thread, size_t bytes) {
  return grow(scratch_.at(static_cast<size_t>(thread)), bytes);
}

std::byte* Stream::shared_scratch(size_t bytes) {
  return grow(shared_, bytes);
}

size_t Stream::scratch_bytes() const {
  size_t total = shared_.size();
  for (const Buffer& b : scratch_) total += b.size();
  return total;
}

}  // namespace lariat
