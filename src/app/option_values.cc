#include "app/option_values.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

namespace lariat {

void OptionValues::set(const std::string& name, std::string text, std::string origin) {
  values_.try_emplace(name, Value{std::move(text), std::move(origin)});
}

const OptionValues::Value* OptionValues::find(std::string_view name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

Error Faults::error() const {
  return make_error(Errc::kInvalidArgument, fmt::format("{}", fmt::join(faults_, "\n")));
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  double unit = 1;
  if (!suffix.empty()) {
    switch (suffix[0]) {
      case 'k':
      case 'K':
        unit = 0x1p10;
        break;
      case 'm':
      case 'M':
        unit = 0x1p20;
        break;
      case 'g':
      case 'G':
        unit = 0x1p30;
        break;
      case 't':
      case 'T':
        unit = 0x1p40;
        break;
      default:
        return std::nullopt;
    }
    const std::string_view rest = suffix.substr(1);
    if (!rest.empty() && rest != "B" && rest != "iB") return std::nullopt;
  }
  const double bytes = value * unit;
  if (bytes >= 0x1p62) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

int64_t read_int(const OptionValues& v, std::string_view name, int64_t fallback, IntRange range,
                 Faults& faults) {
  const auto* given = v.find(name);
  if (!given) return fallback;
  const auto value = parse_int(given->text);
  if (!value || *value < range.min || *value > range.max) {
    faults.add(range.max == INT64_MAX ? fmt::format("{}: '{}' is not a whole number of at least {}",
                                                    given->origin, given->text, range.min)
                                      : fmt::format("{}: '{}' is not a whole number from {} to {}",
                                                    given->origin, given->text, range.min, range.max));
    return fallback;
  }
  return *value;
}

namespace {

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

double read_number(const OptionValues& v, std::string_view name, double min, double max, Faults& faults) {
  const auto* given = v.find(name);
  if (!given) return min;
  const double value = parse_number(given->text).value_or(std::nan(""));
  if (value >= min && value <= max) return value;
  faults.add(fmt::format("{}: '{}' is not a number from {} to {}", given->origin, given->text, min, max));
  return min;
}

double read_seconds(const OptionValues& v, std::string_view name, double fallback, double min,
                    Faults& faults) {
  constexpr double kSecondsMax = 1e6;
  return v.find(name) ? read_number(v, name, min, kSecondsMax, faults) : fallback;
}

int64_t read_bytes_or_auto(const OptionValues& v, std::string_view name, Faults& faults) {
  const auto* given = v.find(name);
  if (!given || given->text == "auto") return 0;
  const auto value = parse_bytes(given->text);
  if (!value || *value == 0) {
    faults.add(fmt::format("{}: '{}' is not a size; write bytes, or 512M, 1.5G, or auto", given->origin,
                           given->text));
    return 0;
  }
  return *value;
}

int read_choice(const OptionValues& v, std::string_view name, std::initializer_list<std::string_view> choices,
                int fallback, Faults& faults) {
  const auto* given = v.find(name);
  if (!given) return fallback;
  int index = 0;
  for (const std::string_view choice : choices) {
    if (given->text == choice) return index;
    ++index;
  }
  faults.add(fmt::format("{}: '{}' is not one of {}", given->origin, given->text, fmt::join(choices, ", ")));
  return fallback;
}

std::vector<int32_t> read_int_list(const OptionValues& v, std::string_view name, IntRange range,
                                   Faults& faults) {
  std::vector<int32_t> list;
  const auto* given = v.find(name);
  if (!given) return list;
  for (const std::string& part : split(given->text, ',')) {
    const auto value = parse_int(part);
    if (!value || *value < range.min || *value > range.max) {
      faults.add(fmt::format("{}: '{}' is not a whole number from {} to {}", given->origin, part, range.min,
                             range.max));
      return {};
    }
    list.push_back(static_cast<int32_t>(*value));
  }
  return list;
}

std::string read_text(const OptionValues& v, std::string_view name, std::string_view fallback) {
  const auto* given = v.find(name);
  return given ? given->text : std::string(fallback);
}

bool read_flag(const OptionValues& v, std::string_view name) {
  const auto* given = v.find(name);
  return given && given->text != "false";
}

}  // namespace lariat
