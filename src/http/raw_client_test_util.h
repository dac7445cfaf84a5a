// A client of bare sockets for tests: says exactly the bytes it is told to. Every wait has a deadline.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace lariat {

struct RawResponse {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
};

class RawClient {
 public:
  using Ms = std::chrono::milliseconds;
  static constexpr Ms kPatience{10'000};

  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) close();
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)) {}
  RawClient& operator=(RawClient&&) = delete;

  bool connected() const { return fd_ >= 0; }
  // False if the server closed, or does not read, in the middle of it.
  bool send(std::string_view bytes, Ms patience = kPatience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!bytes.empty()) {
      if (!ready(POLLOUT, end)) return false;
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void shutdown_write() { ::shutdown(fd_, SHUT_WR); }
  void shutdown_both() { ::shutdown(fd_, SHUT_RDWR); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  // More bytes into the buffer; false at the end of the connection, on a reset, or when patience ends.
  bool receive(std::chrono::steady_clock::time_point end) {
    if (!ready(POLLIN, end)) return false;
    char chunk[65536];
    const ssize_t n = ::recv(fd_, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    in_.append(chunk, static_cast<size_t>(n));
    return true;
  }
  // Takes everything up to and with `mark`; what there is without it, if it never comes.
  std::string read_until(std::string_view mark, Ms patience = kPatience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    for (;;) {
      const size_t at = in_.find(mark);
      if (at != std::string::npos) return take(at + mark.size());
      if (!receive(end)) return take(in_.size());
    }
  }
  std::string read_to_end(Ms patience = kPatience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (receive(end)) {
    }
    return take(in_.size());
  }
  // Whether the server ended the connection, not our patience.
  bool ended() const { return ended_; }

  RawResponse read_head(Ms patience = kPatience) {
    RawResponse r;
    const std::string head = read_until("\r\n\r\n", patience);
    if (!head.starts_with("HTTP/1.1 ") || !head.ends_with("\r\n\r\n")) return r;
    r.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      r.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return r;
  }
  RawResponse read_response(Ms patience = kPatience) {
    RawResponse r = read_head(patience);
    if (r.status == 0) return r;
    if (r.headers.contains("content-length")) {
      const size_t length = std::stoul(r.headers["content-length"]);
      const auto end = std::chrono::steady_clock::now() + patience;
      while (in_.size() < length && receive(end)) {
      }
      r.body = take(std::min(length, in_.size()));
    } else if (r.headers.contains("transfer-encoding")) {
      r.body = read_chunks(patience);
    } else {
      r.body = read_to_end(patience);
    }
    return r;
  }
  // The data of one chunk; empty at the last, or if it does not come.
  std::string read_chunk(Ms patience = kPatience) {
    const std::string size_line = read_until("\r\n", patience);
    if (!size_line.ends_with("\r\n")) return {};
    const size_t size = std::stoul(size_line, nullptr, 16);
    const auto end = std::chrono::steady_clock::now() + patience;
    while (in_.size() < size + 2 && receive(end)) {
    }
    if (in_.size() < size + 2) return {};
    std::string data = take(size + 2);
    data.resize(size);
    return data;
  }
  std::string read_chunks(Ms patience = kPatience) {
    std::string all;
    for (std::string data = read_chunk(patience); !data.empty(); data = read_chunk(patience)) all += data;
    return all;
  }

  static std::string get(const std::string& path, const std::string& headers = "") {
    return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
  }
  static std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

 private:
  std::string take(size_t bytes) {
    std::string out = in_.substr(0, bytes);
    in_.erase(0, bytes);
    return out;
  }
  bool ready(short events, std::chrono::steady_clock::time_point end) {
    if (fd_ < 0) return false;
    const auto left = std::chrono::duration_cast<Ms>(end - std::chrono::steady_clock::now()).count();
    pollfd p{fd_, events, 0};
    return left > 0 && ::poll(&p, 1, static_cast<int>(left)) == 1;
  }

  int fd_;
  std::string in_;
  bool ended_ = false;
};

}  // namespace lariat
