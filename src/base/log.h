// The process's log, on stderr. JSON and answers own stdout.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace lariat {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

void log_line(LogLevel level, std::string_view line);
void set_log_level(LogLevel level);
// Prefix of every later line, for example "rank 2"; empty by default.
void set_log_name(std::string_view name);

template <typename... Args>
void log_debug(fmt::format_string<Args...> f, Args&&... a) {
  log_line(LogLevel::kDebug, fmt::format(f, std::forward<Args>(a)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> f, Args&&... a) {
  log_line(LogLevel::kInfo, fmt::format(f, std::forward<Args>(a)...));
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> f, Args&&... a) {
  log_line(LogLevel::kWarn, fmt::format(f, std::forward<Args>(a)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> f, Args&&... a) {
  log_line(LogLevel::kError, fmt::format(f, std::forward<Args>(a)...));
}

}  // namespace lariat
