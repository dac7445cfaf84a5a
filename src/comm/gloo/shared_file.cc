#include "comm/gloo/shared_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lariat {

Result<SharedFile> SharedFile::open(const std::filesystem::path& path, size_t bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* memory = MAP_FAILED;
  // Every rank sets the same length: the file is long enough for whoever maps it. Its blocks are taken now: a
  // file system that is full later would end the process at its first touch of a page.
  int error = fd < 0 ? errno : ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (error == 0) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    error = errno;
  }
  if (fd >= 0) ::close(fd);
  if (memory == MAP_FAILED) {
    return make_error(Errc::kUnavailable, fmt::format("cannot map {} bytes of {}: {}", bytes, path.string(),
                                                      std::strerror(error)));
  }
  SharedFile file;
  file.data_ = static_cast<std::byte*>(memory);
  file.bytes_ = bytes;
  return file;
}

SharedFile::~SharedFile() {
  if (data_) ::munmap(data_, bytes_);
}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

SharedFile& SharedFile::operator=(SharedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace lariat
