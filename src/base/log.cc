#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace lariat {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto l =
        std::make_shared<spdlog::logger>("lariat", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    l->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
    l->flush_on(spdlog::level::debug);
    return l;
  }();
  return *instance;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void log_line(LogLevel level, std::string_view line) {
  logger().log(level_of(level), "{}", line);
}

void set_log_level(LogLevel level) {
  logger().set_level(level_of(level));
}

void set_log_name(std::string_view name) {
  std::string escaped;
  for (const char c : name) {
    if (c == '%') escaped += '%';
    escaped += c;
  }
  logger().set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ [" + escaped + "] %v");
}

}  // namespace lariat
