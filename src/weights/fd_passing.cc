#include "weights/fd_passing.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lariat {
namespace {

Error os_error(const char* what) {
  return make_error(Errc::kUnavailable, fmt::format("{}: {}", what, std::strerror(errno)));
}

// The folder by descriptor: a socket's address has room for 107 characters, a path for thousands.
struct Address {
  OwnedFd dir;
  sockaddr_un at{};
};

Result<Address> address_of(const std::filesystem::path& dir, const std::string& name) {
  Address a;
  a.dir = OwnedFd(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (a.dir.get() < 0) return os_error("open the folder of sockets");
  a.at.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/{}", a.dir.get(), name);
  if (path.size() >= sizeof a.at.sun_path)
    return make_error(Errc::kInvalidArgument, fmt::format("the socket's name {} is too long", name));
  std::memcpy(a.at.sun_path, path.c_str(), path.size() + 1);
  return a;
}

Result<OwnedFd> unix_socket() {
  OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return os_error("socket");
  return fd;
}

bool is_ours(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == ::geteuid();
}

Status ready(int socket, short events, FdDeadline deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd p{socket, events, 0};
    const int n = left <= 0 ? 0 : ::poll(&p, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (n > 0) return Ok{};
    if (n < 0 && errno != EINTR) return os_error("poll");
    if (n == 0 && std::chrono::steady_clock::now() >= deadline)
      return make_error(Errc::kDeadlineExceeded, "a local process did not answer in time");
  }
}

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<OwnedFd> listen_at(const std::filesystem::path& dir, const std::string& name) {
  const std::string draft = name + ".new";
  LARIAT_ASSIGN(const Address a, address_of(dir, draft));
  LARIAT_ASSIGN(OwnedFd fd, unix_socket());
  ::unlinkat(a.dir.get(), draft.c_str(), 0);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a.at), sizeof a.at) != 0) return os_error("bind");
  if (::listen(fd.get(), 64) != 0 || ::renameat(a.dir.get(), draft.c_str(), a.dir.get(), name.c_str()) != 0) {
    const Error why = os_error("listen");
    ::unlinkat(a.dir.get(), draft.c_str(), 0);
    return why;
  }
  return fd;
}

Result<OwnedFd> connect_to(const std::filesystem::path& dir, const std::string& name) {
  LARIAT_ASSIGN(const Address a, address_of(dir, name));
  LARIAT_ASSIGN(OwnedFd fd, unix_socket());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&a.at), sizeof a.at) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT)
      return make_error(Errc::kNotFound, "nobody listens at " + name);
    return os_error("connect");  // EAGAIN: more callers than it has room for
  }
  if (!is_ours(fd.get())) return make_error(Errc::kUnavailable, name + " is another user's");
  return fd;
}

Result<OwnedFd> accept_from(int listener) {
  OwnedFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.get() < 0) return os_error("accept");
  if (!is_ours(fd.get())) return make_error(Errc::kUnavailable, "another user called");
  return fd;
}

Status send_bytes(int socket, std::span<const std::byte> bytes, FdDeadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return os_error("send");
    if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
    if (n < 0) LARIAT_RETURN_IF_ERROR(ready(socket, POLLOUT, deadline));
  }
  return Ok{};
}

Status recv_bytes(int socket, std::span<std::byte> bytes, FdDeadline deadline) {
  while (!bytes.empty()) {
    LARIAT_RETURN_IF_ERROR(ready(socket, POLLIN, deadline));
    const ssize_t n = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (n == 0) return make_error(Errc::kUnavailable, "a local process hung up");
    if (n < 0 && errno != EAGAIN && errno != EINTR) return os_error("recv");
    if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return Ok{};
}

Status send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds,
                     FdDeadline deadline) {
  LARIAT_CHECK(!bytes.empty() && fds.size() <= kPassedFdsMax, "{} descriptors with {} bytes", fds.size(),
               bytes.size());
  alignas(cmsghdr) std::byte control[CMSG_SPACE(kPassedFdsMax * sizeof(int))] = {};
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  while (true) {
    const ssize_t n = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (n > 0) return send_bytes(socket, bytes.subspan(static_cast<size_t>(n)), deadline);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return os_error("sendmsg");
    LARIAT_RETURN_IF_ERROR(ready(socket, POLLOUT, deadline));
  }
}

Result<std::vector<OwnedFd>> recv_with_fds(int socket, std::span<std::byte> bytes, FdDeadline deadline) {
  alignas(cmsghdr) std::byte control[CMSG_SPACE(kPassedFdsMax * sizeof(int))] = {};
  iovec data{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  LARIAT_RETURN_IF_ERROR(ready(socket, POLLIN, deadline));
  const ssize_t n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return os_error("recvmsg");
  std::vector<OwnedFd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if (n == 0) return make_error(Errc::kUnavailable, "a local process hung up");
  if (message.msg_flags & MSG_CTRUNC)
    return make_error(Errc::kCorruptData, "more descriptors than there is room for");
  LARIAT_RETURN_IF_ERROR(recv_bytes(socket, bytes.subspan(static_cast<size_t>(n)), deadline));
  return fds;
}

}  // namespace lariat
