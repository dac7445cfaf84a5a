#include "weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace lariat {

MappedFile::Identity MappedFile::identify(int fd) {
  struct stat st{};
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return {};
  return {st.st_dev, st.st_ino, st.st_size, int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec};
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  MappedFile file;
  file.label_ = path.string();
  // O_NONBLOCK: opening a FIFO under a model's name must not wait for a writer.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) return make_error(Errc::kNotFound, file.label_ + ": " + std::strerror(errno));
  file.identity_ = identify(file.fd_);
  if (file.identity_.inode == 0) return make_error(Errc::kCorruptData, file.label_ + ": not a regular file");
  if (file.identity_.size == 0) return file;
  const auto size = static_cast<size_t>(file.identity_.size);
  void* p = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd_, 0);
  if (p == MAP_FAILED) {
    return make_error(Errc::kResourceExhausted, file.label_ + ": cannot map it: " + std::strerror(errno));
  }
  file.data_ = static_cast<const std::byte*>(p);
  file.size_ = size;
  return file;
}

MappedFile MappedFile::view(std::span<const std::byte> bytes, std::string label, bool in_image) {
  MappedFile file;
  file.data_ = bytes.data();
  file.size_ = bytes.size();
  file.label_ = std::move(label);
  file.in_image_ = in_image;
  return file;
}

Status MappedFile::check_unchanged() const {
  if (fd_ < 0 || identify(fd_) == identity_) return Ok{};
  return make_error(Errc::kCorruptData, label_ + ": changed while it was being loaded");
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  if ((fd_ < 0 && !in_image_) || part.empty()) return;
  // Whole pages only: the neighbours in the first and the last one are in use.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t from = (begin + page - 1) / page * page;
  const uintptr_t to = (begin + part.size()) / page * page;
  if (from >= to) return;
  auto* pages = const_cast<std::byte*>(part.data()) + (from - begin);
  madvise(pages, to - from, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  release();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      in_image_(other.in_image_),
      identity_(other.identity_),
      label_(std::move(other.label_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    fd_ = std::exchange(other.fd_, -1);
    in_image_ = other.in_image_;
    identity_ = other.identity_;
    label_ = std::move(other.label_);
  }
  return *this;
}

void MappedFile::release() {
  if (fd_ >= 0) {
    if (data_) munmap(const_cast<std::byte*>(data_), size_);
    close(fd_);
  }
  data_ = nullptr;
  size_ = 0;
  fd_ = -1;
}

}  // namespace lariat
