// A file's bytes mapped read-only, or bytes that are part of the program itself.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace lariat {

// Movable. The mapping is shared: processes that map the same file hold one copy in the page cache. If
// another process cuts the file while it is mapped, touching the lost pages raises SIGBUS: check_unchanged()
// after a load finds a file that changed meanwhile, and nothing can protect against a later cut.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // kNotFound if it cannot be opened, kCorruptData if it is not a regular file, kResourceExhausted if it
  // cannot be mapped. An empty file has no bytes.
  static Result<MappedFile> open(const std::filesystem::path& path);
  // A look at memory that outlives this object. in_image: it is read-only data of the program's own file.
  static MappedFile view(std::span<const std::byte> bytes, std::string label, bool in_image = false);

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& label() const { return label_; }  // the path, for messages

  // kCorruptData if size, modification time or identity differ from those at open(). Ok for a view.
  Status check_unchanged() const;
  // Drops the whole pages inside `part` of bytes() from this process's resident set; a later touch reads them
  // again. Nothing happens for a view of memory that no file stands behind.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    int64_t mtime_ns = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  static Identity identify(int fd);
  void release();

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;            // -1 for a view
  bool in_image_ = false;  // backed by the program's file
  Identity identity_;
  std::string label_;
};

}  // namespace lariat
