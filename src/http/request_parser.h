// HTTP/1.x requests out of bytes as they arrive. No sockets: the connection feeds it, and so does a fuzzer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/api_error.h"

namespace lariat {

struct RequestHead {
  std::string method;
  std::string path;  // percent-decoded, without query
  std::string authorization;
  int version = 11;  // 10 or 11
  bool keep_alive = true;
  bool expects_continue = false;
};

// One request; make a new one for the next.
class RequestParser {
 public:
  // More header than `header_bytes_max` is a 431, more body than `body_bytes_max` a 413.
  RequestParser(size_t header_bytes_max, size_t body_bytes_max);
  ~RequestParser();

  // Takes what it can of `data` and returns how much; the rest must come again, with more behind it.
  size_t feed(std::string_view data);

  bool header_done() const;
  bool done() const;
  bool failed() const { return error_.status != 0; }
  const ApiError& error() const { return error_; }
  const RequestHead& head() const { return head_; }  // once header_done()
  std::string take_body();                           // once done()
  size_t body_bytes() const;                         // held so far

 private:
  struct Impl;
  void fail(int status, std::string message);
  void read_head();
  void judge_framing();

  std::unique_ptr<Impl> impl_;
  const size_t header_bytes_max_, body_bytes_max_;
  bool begun_ = false;  // past the empty lines that may come before a request
  RequestHead head_;
  ApiError error_;
};

// The bytes of a target's path with %XX decoded, from "/path?query" or "http://host/path?query"; nullopt if
// an escape is broken.
std::optional<std::string> decode_path(std::string_view target);

}  // namespace lariat
