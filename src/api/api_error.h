// Errors as OpenAI's clients expect them, and the one table from our error kinds to HTTP statuses.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/result.h"

namespace lariat {

struct ApiError {
  int status = 0;    // of HTTP
  std::string type;  // "invalid_request_error", "server_error", ..
  std::string code;  // "context_length_exceeded", ..; null in the body if empty
  std::string param;
  std::string message;
  int retry_after_s = 0;  // the Retry-After header, 0: none
};

// 400 kInvalidArgument, kUnsupported; 404 kNotFound; 429 kResourceExhausted with Retry-After; 499 kCancelled;
// 503 kUnavailable with Retry-After; 504 kDeadlineExceeded; 500 kInternal, kCorruptData (a request's broken
// JSON is turned into kInvalidArgument where it is parsed). A long message keeps its beginning and its end.
ApiError to_api_error(const Error& error);

// A 400 about a request field: `param` is the top-level field, `path` says where inside it the fault is.
Error field_error(std::string path, std::string_view what);

// {"error":{"message","type","param","code"}}, compact.
std::string error_body(const ApiError& error);

// A value, or why the client does not get one. Converts from Error, so that LARIAT_ASSIGN works in functions
// returning it.
template <typename T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  ApiResult(ApiError error) : v_(std::in_place_index<1>, std::move(error)) {}
  ApiResult(const Error& error) : v_(std::in_place_index<1>, to_api_error(error)) {}

  bool ok() const { return v_.index() == 0; }
  T& value() & {
    LARIAT_CHECK(ok(), "value() of an error: {}", std::get<1>(v_).message);
    return std::get<0>(v_);
  }
  T&& value() && {
    LARIAT_CHECK(ok(), "value() of an error: {}", std::get<1>(v_).message);
    return std::move(std::get<0>(v_));
  }
  T* operator->() { return &value(); }
  const ApiError& error() const& {
    LARIAT_CHECK(!ok(), "error() of a value");
    return std::get<1>(v_);
  }
  ApiError&& error() && {
    LARIAT_CHECK(!ok(), "error() of a value");
    return std::move(std::get<1>(v_));
  }

 private:
  std::variant<T, ApiError> v_;
};

}  // namespace lariat
