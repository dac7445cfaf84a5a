// Errors as values: Result<T> holds a T or an Error. What the world can cause is a Result; a bug is a CHECK.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace lariat {

// The closed set of failure kinds; the HTTP table and the exit codes are functions of it.
enum class Errc {
  kInvalidArgument,    // the caller can mend it (400, exit 2)
  kNotFound,           // a named thing does not exist (404, exit 2)
  kUnsupported,        // understood, and not implemented (400, exit 2)
  kCorruptData,        // a file or message breaks its format (exit 2)
  kResourceExhausted,  // memory, pages, queue (429 or 400, exit 3)
  kDeadlineExceeded,   // a wait ran out
  kUnavailable,        // forming, draining, peer gone (503)
  kCancelled,          // the asker went away
  kInternal,           // ours (500)
};

std::string_view errc_name(Errc code);

struct Error {
  Errc code = Errc::kInternal;
  std::string message;  // what was wrong, where, and what would be right
  std::string param;    // the request field or flag at fault, empty if none

  // The same error with "where: " in front.
  Error in(std::string_view where) const { return Error{code, std::string(where) + ": " + message, param}; }
};

inline Error make_error(Errc code, std::string message, std::string param = {}) {
  return Error{code, std::move(message), std::move(param)};
}

struct Ok {};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    LARIAT_CHECK(ok(), "value() of an error: {}", std::get<1>(v_).message);
    return std::get<0>(v_);
  }
  const T& value() const& {
    LARIAT_CHECK(ok(), "value() of an error: {}", std::get<1>(v_).message);
    return std::get<0>(v_);
  }
  T&& value() && {
    LARIAT_CHECK(ok(), "value() of an error: {}", std::get<1>(v_).message);
    return std::move(std::get<0>(v_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    LARIAT_CHECK(!ok(), "error() of a value");
    return std::get<1>(v_);
  }
  Error&& error() && {
    LARIAT_CHECK(!ok(), "error() of a value");
    return std::move(std::get<1>(v_));
  }

 private:
  std::variant<T, Error> v_;
};

using Status = Result<Ok>;

}  // namespace lariat

#define LARIAT_CONCAT_(a, b) a##b
#define LARIAT_CONCAT(a, b) LARIAT_CONCAT_(a, b)

// Returns the error of `expr` from the enclosing function.
#define LARIAT_RETURN_IF_ERROR(expr)                                    \
  do {                                                                  \
    auto lariat_status_ = (expr);                                       \
    if (!lariat_status_.ok()) return std::move(lariat_status_).error(); \
  } while (0)

// `LARIAT_ASSIGN(auto x, f())`: declares or assigns x from a Result, or returns its error.
#define LARIAT_ASSIGN(lhs, expr) LARIAT_ASSIGN_(LARIAT_CONCAT(lariat_result_, __LINE__), lhs, expr)
#define LARIAT_ASSIGN_(tmp, lhs, expr)          \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  lhs = std::move(tmp).value()
