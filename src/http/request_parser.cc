#include "http/request_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <optional>

#include "base/excerpt.h"

namespace lariat {

namespace http = boost::beast::http;

struct RequestParser::Impl {
  http::request_parser<http::string_body> parser;
  bool head_read = false;
};

namespace {

// What a chunked body still has to bring at any point before its end: "0\r\n\r\n". Beast 1.81 asserts that it
// never sees less once it has read the last chunk's size.
constexpr size_t kChunkedEndBytes = 5;

constexpr size_t kCodingBytesMax = 100;  // of a client's word in a message

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

std::optional<std::string> decode_path(std::string_view target) {
  // The absolute form, which a server must take too (RFC 9112 §3.2.2).
  if (const size_t scheme = target.find("://"); scheme != std::string_view::npos && target.front() != '/') {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      out += path[i];
      continue;
    }
    if (i + 2 >= path.size()) return std::nullopt;
    const int hi = hex_digit(path[i + 1]), lo = hex_digit(path[i + 2]);
    if (hi < 0 || lo < 0) return std::nullopt;
    out += static_cast<char>(hi * 16 + lo);
    i += 2;
  }
  return out;
}

RequestParser::RequestParser(size_t header_bytes_max, size_t body_bytes_max)
    : impl_(std::make_unique<Impl>()), header_bytes_max_(header_bytes_max), body_bytes_max_(body_bytes_max) {
  impl_->parser.header_limit(static_cast<uint32_t>(header_bytes_max));
  impl_->parser.body_limit(body_bytes_max);
}

RequestParser::~RequestParser() = default;

bool RequestParser::header_done() const {
  return impl_->head_read;
}

bool RequestParser::done() const {
  return !failed() && impl_->head_read && impl_->parser.is_done();
}

std::string RequestParser::take_body() {
  return std::move(impl_->parser.get().body());
}

size_t RequestParser::body_bytes() const {
  return impl_->parser.get().body().size();
}

void RequestParser::fail(int status, std::string message) {
  error_.status = status;
  error_.type = "invalid_request_error";
  error_.code = status == 413 ? "body_too_large" : "bad_request";
  error_.message = std::move(message);
}

void RequestParser::read_head() {
  const auto& message = impl_->parser.get();
  impl_->head_read = true;
  const auto text = [](boost::beast::string_view s) { return std::string(s.data(), s.size()); };
  head_.method = text(message.method_string());
  head_.authorization = text(message[http::field::authorization]);
  head_.version = static_cast<int>(message.version());
  head_.keep_alive = impl_->parser.keep_alive();
  head_.expects_continue = same_word(text(message[http::field::expect]), "100-continue");
  const auto target = message.target();
  std::optional<std::string> path = decode_path({target.data(), target.size()});
  if (!path) return fail(400, "the request target has a broken % escape");
  head_.path = std::move(*path);
  judge_framing();
}

// Two readers that find different ends of a body take its rest for different requests (RFC 9112 §6.1, §6.3),
// so whatever this one does not do is refused.
void RequestParser::judge_framing() {
  const auto& message = impl_->parser.get();
  const auto text = [&](http::field f) { return std::string(message[f].data(), message[f].size()); };
  if (message.count(http::field::content_length) > 1) return fail(400, "several Content-Length headers");
  if (message.count(http::field::host) > 1) return fail(400, "several Host headers");
  if (const size_t codings = message.count(http::field::transfer_encoding); codings > 0) {
    const std::string coding = text(http::field::transfer_encoding);
    if (codings > 1 || !same_word(coding, "chunked"))
      return fail(501, fmt::format("the transfer coding '{}' is not supported; chunked is",
                                   excerpt(coding, kCodingBytesMax)));
    if (message.count(http::field::content_length) > 0)
      return fail(400, "both Transfer-Encoding and Content-Length");
  }
  const std::string coding = text(http::field::content_encoding);
  if (!coding.empty() && !same_word(coding, "identity"))
    fail(415, fmt::format("the content coding '{}' is not supported; send the body as it is",
                          excerpt(coding, kCodingBytesMax)));
}

size_t RequestParser::feed(std::string_view data) {
  size_t taken = 0;
  // RFC 9112 §2.2: a client may send an empty line behind the body of its last request.
  while (!begun_ && data.substr(taken).starts_with("\r\n")) taken += 2;
  if (taken == data.size() || (!begun_ && data.substr(taken) == "\r")) return taken;
  begun_ = true;
  while (!failed() && !done()) {
    boost::beast::error_code ec;
    const std::string_view rest = data.substr(taken);
    if (impl_->head_read && impl_->parser.chunked() && rest.size() < kChunkedEndBytes) break;
    taken += impl_->parser.put({rest.data(), rest.size()}, ec);
    if (!impl_->head_read && impl_->parser.is_header_done()) read_head();
    if (!ec) {
      if (taken == data.size() && !done()) break;
      continue;
    }
    if (ec == http::error::need_more) {
      // A chunk header or trailer that never ends would otherwise be kept for ever.
      if (data.size() - taken > header_bytes_max_) fail(400, "a chunk header is too long");
      break;
    }
    if (ec == http::error::body_limit) {
      fail(413, fmt::format("the body is larger than {} bytes", body_bytes_max_));
    } else if (ec == http::error::header_limit) {
      fail(431, fmt::format("the request header is larger than {} bytes", header_bytes_max_));
    } else {
      fail(400, "not a valid HTTP/1.1 request: " + ec.message());
    }
  }
  return taken;
}

}  // namespace lariat
