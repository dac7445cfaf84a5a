// Owned memory: 64-byte aligned, on a device, optionally backed by a memfd that local ranks can map.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"

namespace lariat {

// Owns `bytes` of memory, zero-filled, aligned to kBufferAlign; movable. An empty buffer has data() ==
// nullptr.
class Buffer {
 public:
  static constexpr size_t kAlign = 64;

  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  // Private anonymous pages; the kernel hands them out at first touch. kResourceExhausted if it refuses.
  static Result<Buffer> allocate(size_t bytes);
  // A sealed-size memfd mapped shared: fd() can be sent to another process, which maps the same pages.
  static Result<Buffer> allocate_shared(size_t bytes, const char* name);
  // Maps `bytes` of an existing memfd (read-only); takes a duplicate of fd.
  static Result<Buffer> map_shared(int fd, size_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_; }  // -1 if not shared
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }

 private:
  Buffer(std::byte* data, size_t size, int fd) : data_(data), size_(size), fd_(fd) {}
  void release();

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
};

}  // namespace lariat
