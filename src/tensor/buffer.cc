#include "tensor/buffer.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lariat {
namespace {

Error map_error(size_t bytes, const char* what) {
  return make_error(Errc::kResourceExhausted,
                    fmt::format("cannot {} {} bytes: {}", what, bytes, std::strerror(errno)));
}

// Large ranges are worth huge pages: a 16K-token KV pool or a weight matrix spans thousands of 4 KiB pages.
void prefer_huge_pages(void* p, size_t bytes) {
  constexpr size_t kHugeWorthwhile = size_t{4} << 20;
  if (bytes >= kHugeWorthwhile) madvise(p, bytes, MADV_HUGEPAGE);
}

}  // namespace

Result<Buffer> Buffer::allocate(size_t bytes) {
  if (bytes == 0) return Buffer();
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return map_error(bytes, "allocate");
  prefer_huge_pages(p, bytes);
  return Buffer(static_cast<std::byte*>(p), bytes, -1);
}

Result<Buffer> Buffer::allocate_shared(size_t bytes, const char* name) {
  if (bytes == 0) return Buffer();
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) return map_error(bytes, "create a shared mapping of");
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const Error error = map_error(bytes, "size a shared mapping of");
    close(fd);
    return error;
  }
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) {
    const Error error = map_error(bytes, "map");
    close(fd);
    return error;
  }
  prefer_huge_pages(p, bytes);
  return Buffer(static_cast<std::byte*>(p), bytes, fd);
}

Result<Buffer> Buffer::map_shared(int fd, size_t bytes) {
  if (bytes == 0) return Buffer();
  const int own = dup(fd);
  if (own < 0) return map_error(bytes, "duplicate the descriptor of");
  void* p = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, own, 0);
  if (p == MAP_FAILED) {
    const Error error = map_error(bytes, "map");
    close(own);
    return error;
  }
  return Buffer(static_cast<std::byte*>(p), bytes, own);
}

Buffer::~Buffer() {
  release();
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Buffer::release() {
  if (data_) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
  data_ = nullptr;
  fd_ = -1;
  size_ = 0;
}

}  // namespace lariat
