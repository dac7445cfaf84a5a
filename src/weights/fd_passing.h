// Unix sockets in a private folder between processes of one user, with descriptors passed along. Every call
// has a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lariat {

using FdDeadline = std::chrono::steady_clock::time_point;

class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Listens at dir/name, which appears once connections are accepted. The path may be longer than a socket's
// address.
Result<OwnedFd> listen_at(const std::filesystem::path& dir, const std::string& name);
// kNotFound: nobody listens there any more.
Result<OwnedFd> connect_to(const std::filesystem::path& dir, const std::string& name);
// The next connection of this user's; others are closed. Does not block: kUnavailable if there is none.
Result<OwnedFd> accept_from(int listener);

Status send_bytes(int socket, std::span<const std::byte> bytes, FdDeadline deadline);
Status recv_bytes(int socket, std::span<std::byte> bytes, FdDeadline deadline);

inline constexpr size_t kPassedFdsMax = 64;
// One message with up to kPassedFdsMax descriptors; the two sides agree on its length, which is small.
Status send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds,
                     FdDeadline deadline);
Result<std::vector<OwnedFd>> recv_with_fds(int socket, std::span<std::byte> bytes, FdDeadline deadline);

}  // namespace lariat
