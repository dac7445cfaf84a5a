#include "app/private_dir.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace lariat {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kStem = "lariat-group-", kRandom = "XXXXXX";
constexpr int kTries = 100;

// A descriptor that holds the folder's lock; -1 if it is another's, or not a folder of ours.
int try_lock(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat held{}, named{};
  const bool ours = ::fstat(fd, &held) == 0 && held.st_uid == ::geteuid() && (held.st_mode & 077) == 0 &&
                    ::flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                    // Whoever had the lock before may have removed the folder.
                    ::lstat(path.c_str(), &named) == 0 && named.st_ino == held.st_ino &&
                    named.st_dev == held.st_dev;
  if (ours) return fd;
  ::close(fd);
  return -1;
}

void remove_with_lock(const fs::path& path, int lock) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
  ::close(lock);
}

// A killed owner cannot remove its folder, and its ranks die with it.
void sweep(const fs::path& root) {
  std::error_code failed;
  for (fs::directory_iterator it(root, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name.size() != kStem.size() + kRandom.size() || !name.starts_with(kStem)) continue;
    if (const int lock = try_lock(it->path()); lock >= 0) remove_with_lock(it->path(), lock);
  }
}

}  // namespace

Result<PrivateDir> PrivateDir::create() {
  std::error_code failed;
  const fs::path root = fs::temp_directory_path(failed);
  if (failed) {
    const char* given = std::getenv("TMPDIR");
    return make_error(Errc::kUnavailable, fmt::format("no folder for temporary files: {}: {}",
                                                      given ? given : "/tmp", failed.message()));
  }
  return create(root);
}

Result<PrivateDir> PrivateDir::create(const fs::path& root) {
  sweep(root);
  std::string path;
  for (int i = 0; i < kTries; ++i) {
    path = (root / fmt::format("{}{}", kStem, kRandom)).string();
    if (!mkdtemp(path.data())) break;
    PrivateDir dir;
    dir.lock_ = try_lock(path);
    if (dir.lock_ < 0) continue;  // another process that sweeps was quicker, and removes it
    dir.path_ = path;
    return dir;
  }
  return make_error(Errc::kUnavailable,
                    fmt::format("cannot make a folder like {}: {}", path, std::strerror(errno)));
}

PrivateDir::~PrivateDir() {
  if (!path_.empty()) remove_with_lock(path_, lock_);
}

}  // namespace lariat
