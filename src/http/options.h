// What the HTTP server is told once, at start. Every limit and deadline is documented in docs/api.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lariat {

struct HttpLimits {
  using Ms = std::chrono::milliseconds;

  size_t header_bytes_max = 16 << 10;
  size_t body_bytes_max = 16 << 20;
  size_t bodies_bytes_max = 256 << 20;  // of all requests that are being read and parsed
  int connections_max = 1024;
  size_t pending_bytes_max = 4 << 20;  // of a stream that its client does not read
  int send_buffer_bytes = 256 << 10;   // SO_SNDBUF of a connection, 0: the system's
  Ms idle_timeout{75'000};             // between requests, and before the first
  Ms header_timeout{10'000};           // from a request's first byte to the end of its header
  Ms body_timeout{60'000};             // from there to the end of its body
  Ms write_timeout{30'000};            // for the client to take one write
  Ms keepalive_interval{5'000};        // a silent stream gets a comment this often
  Ms request_timeout{0};               // a generation's whole life, 0: no end
};

struct HttpOptions {
  std::string host = "127.0.0.1";     // an address, or "localhost"
  uint16_t port = 0;                  // 0: any free one
  std::vector<std::string> api_keys;  // empty: nobody is asked
  int parse_threads = 2;              // that read and tokenize bodies
  HttpLimits limits;
};

}  // namespace lariat
