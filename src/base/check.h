// Invariants. A failed CHECK is a bug of ours: it prints where and why, and aborts, in release too.
#pragma once

#include <fmt/core.h>

#include <string>

namespace lariat {

[[noreturn]] void check_failed(const char* file, int line, const char* expr, const std::string& message);

namespace check_detail {
inline std::string message() {
  return {};
}
template <typename... Args>
std::string message(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
}  // namespace check_detail

}  // namespace lariat

#define LARIAT_CHECK(cond, ...)                                                                        \
  do {                                                                                                 \
    if (!(cond)) [[unlikely]]                                                                          \
      ::lariat::check_failed(__FILE__, __LINE__, #cond, ::lariat::check_detail::message(__VA_ARGS__)); \
  } while (0)
