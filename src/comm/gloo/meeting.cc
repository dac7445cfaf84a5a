#include "comm/gloo/meeting.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/file.h"
#include "comm/gloo/obituary.h"

namespace lariat {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr auto kPoll = std::chrono::milliseconds(2);

Error os_error(const std::string& what, const std::filesystem::path& path) {
  return make_error(Errc::kUnavailable, fmt::format("{} {}: {}", what, path.string(), std::strerror(errno)));
}

Status write_new_file(const std::filesystem::path& path, const std::string& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return os_error("cannot create", path);
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  ::close(fd);
  if (written != static_cast<ssize_t>(bytes.size())) return os_error("cannot write", path);
  return Ok{};
}

}  // namespace

Meeting::Meeting(std::filesystem::path dir, std::string prefix, int32_t rank)
    : dir_(std::move(dir)), prefix_(std::move(prefix)), rank_(rank) {}

Meeting::Meeting(Meeting&& other) noexcept
    : dir_(std::move(other.dir_)),
      prefix_(std::move(other.prefix_)),
      rank_(other.rank_),
      published_(std::exchange(other.published_, false)) {}

Meeting::~Meeting() {
  if (published_) ::unlink(path(rank_name(rank_)).c_str());
}

Result<Meeting> Meeting::create(std::filesystem::path dir, std::string prefix, int32_t rank) {
  struct stat st{};
  if (::stat(dir.c_str(), &st) != 0 || !S_ISDIR(st.st_mode))
    return make_error(Errc::kInvalidArgument,
                      fmt::format("no directory {} for ranks to meet in", dir.string()));
  if (st.st_uid != ::geteuid() || (st.st_mode & 077) != 0) {
    return make_error(
        Errc::kInvalidArgument,
        fmt::format("{} is open to others: ranks meet in a directory of mode 0700", dir.string()));
  }
  const bool plain =
      !prefix.empty() && prefix.size() <= 64 && std::all_of(prefix.begin(), prefix.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
      });
  if (!plain)
    return make_error(Errc::kInvalidArgument, "the prefix of a group is letters, digits, '-' and '_'");
  return Meeting(std::move(dir), std::move(prefix), rank);
}

std::filesystem::path Meeting::path(const std::string& name) const {
  return dir_ / (prefix_ + "." + name);
}

Status Meeting::publish(const std::vector<std::vector<char>>& addresses) {
  std::string text;
  for (const std::vector<char>& address : addresses) {
    const auto bytes = static_cast<uint32_t>(address.size());
    text.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    text.append(address.data(), address.size());
  }
  const std::filesystem::path draft = path(fmt::format("draft {} {}", rank_, ::getpid()));
  LARIAT_RETURN_IF_ERROR(write_new_file(draft, text));
  // A link fails where a rename would replace what an older attempt left.
  const bool linked = ::link(draft.c_str(), path(rank_name(rank_)).c_str()) == 0;
  const Error why = os_error("the prefix is in use: cannot create", path(rank_name(rank_)));
  ::unlink(draft.c_str());
  if (!linked) return why;
  published_ = true;
  return Ok{};
}

Result<std::vector<char>> Meeting::find(int32_t peer, Deadline deadline,
                                        const std::atomic<bool>* cancelled) const {
  const std::filesystem::path file = path(rank_name(peer));
  while (true) {
    if (::access(file.c_str(), F_OK) == 0) break;
    if (cancelled && cancelled->load())
      return make_error(Errc::kCancelled,
                        fmt::format("forming was cancelled while rank {} was to come", peer));
    if (CommClock::now() >= deadline) {
      return make_error(Errc::kDeadlineExceeded, fmt::format("rank {} did not come to form the group", peer),
                        rank_name(peer));
    }
    std::this_thread::sleep_for(kPoll);
  }
  LARIAT_ASSIGN(const std::string text, read_file(file, kFileBytesMax));
  size_t at = 0;
  for (int32_t i = 0;; ++i) {
    uint32_t bytes = 0;
    if (text.size() - at < sizeof bytes) break;
    std::memcpy(&bytes, text.data() + at, sizeof bytes);
    at += sizeof bytes;
    if (text.size() - at < bytes) break;
    if (i == rank_) return std::vector<char>(text.data() + at, text.data() + at + bytes);
    at += bytes;
  }
  return make_error(Errc::kCorruptData,
                    fmt::format("rank {} forms a group without rank {}: layouts differ", peer, rank_),
                    rank_name(peer));
}

}  // namespace lariat
