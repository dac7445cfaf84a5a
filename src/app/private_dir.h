// A folder of mode 0700 that is removed with its owner, or with the next one's start if the owner was killed.
#pragma once

#include <filesystem>
#include <utility>

#include "base/result.h"

namespace lariat {

class PrivateDir {
 public:
  // Below `root`, which is the system's folder for temporary files. The owner holds a lock on it; folders of
  // this kind that nobody holds are removed first. kUnavailable if it cannot be made.
  static Result<PrivateDir> create();
  static Result<PrivateDir> create(const std::filesystem::path& root);
  PrivateDir() = default;
  ~PrivateDir();
  PrivateDir(PrivateDir&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}
  PrivateDir& operator=(PrivateDir&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(lock_, other.lock_);
    return *this;
  }
  const std::filesystem::path& path() const { return path_; }  // empty: none

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace lariat
