// Where ops run: a device and, on a CPU rank, its threads and their scratch memory.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/buffer.h"

namespace lariat {

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
};

// One rank's execution context. Ops on a CPU stream are synchronous. Not thread-safe: one caller at a time.
class Stream {
 public:
  static std::unique_ptr<Stream> cpu(int threads);

  const Device& device() const { return device_; }
  ThreadPool& pool() { return *pool_; }
  int threads() const { return pool_->threads(); }

  // Thread `thread`'s own scratch of at least `bytes`, 64-byte aligned, contents undefined, valid until the
  // same thread asks again. Grows and stays; a model's workspace is therefore reached in its first full
  // chunk.
  std::byte* scratch(int thread, size_t bytes);
  // Scratch shared by all threads of one op (packing, split partials); the same rules, asked for by the
  // caller's thread.
  std::byte* shared_scratch(size_t bytes);
  // Bytes that scratch holds now, over all threads.
  size_t scratch_bytes() const;

 private:
  explicit Stream(int threads);
  static std::byte* grow(Buffer& buffer, size_t bytes);

  Device device_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<Buffer> scratch_;
  Buffer shared_;
};

}  // namespace lariat
