// A file that the ranks of one machine map, writable by all of them.
#pragma once

#include <cstddef>
#include <filesystem>

#include "base/result.h"

namespace lariat {

class SharedFile {
 public:
  SharedFile() = default;
  // Maps the first `bytes` of the file, zeros at first; the first rank to come creates it. Every rank names
  // the same length. kUnavailable where there is no room for it: afterwards no touch of it can fail.
  static Result<SharedFile> open(const std::filesystem::path& path, size_t bytes);
  ~SharedFile();
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;

  std::byte* data() const { return data_; }  // null if default-constructed

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lariat
