#include "base/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/excerpt.h"

namespace lariat {
namespace {

// The library's messages repeat the token at fault, which may be all of the text; the fault is at its end.
constexpr size_t kReasonBytesMax = 400;
constexpr size_t kKeyBytesMax = 100;

// A SAX pass before the DOM is built: depth and duplicate keys are judged while no tree exists yet.
class LimitsSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit LimitsSax(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    if (limits_.reject_duplicate_keys && !keys_.back().insert(name).second) {
      fault = "duplicate key \"" + excerpt(name, kKeyBytesMax) + "\"";
      return false;
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    fault = "at byte " + std::to_string(position) + ": " + excerpt(strip(e.what()), kReasonBytesMax);
    fault_byte = position;
    return false;
  }

  std::string fault;
  std::optional<size_t> fault_byte;  // where it is no JSON; 1 for the first

 private:
  bool enter() {
    if (static_cast<int>(keys_.size()) >= limits_.depth_max) {
      fault = "nested deeper than " + std::to_string(limits_.depth_max) + " levels";
      return false;
    }
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }
  static std::string_view strip(std::string_view what) {
    const size_t colon = what.find(": ");
    return colon == std::string_view::npos ? what : what.substr(colon + 2);
  }

  const JsonLimits limits_;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const JsonLimits& limits) {
  // The library takes a NUL for the end of its input and would not look behind it.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return make_error(Errc::kCorruptData, "invalid JSON: a NUL at byte " + std::to_string(nul));
  }
  LimitsSax sax(limits);
  if (!nlohmann::json::sax_parse(text, &sax)) {
    return make_error(Errc::kCorruptData, "invalid JSON: " + sax.fault);
  }
  nlohmann::json value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return make_error(Errc::kCorruptData, "invalid JSON");
  return value;
}

std::string json_fault_place(std::string_view text) {
  LimitsSax sax({.depth_max = INT_MAX});
  if (nlohmann::json::sax_parse(text, &sax) || !sax.fault_byte) return {};
  const std::string_view before = text.substr(0, *sax.fault_byte > 0 ? *sax.fault_byte - 1 : 0);
  const size_t line_begin = before.rfind('\n') + 1;  // 0 if there is none
  return fmt::format(" at byte {} (line {}, column {})", *sax.fault_byte,
                     1 + std::count(before.begin(), before.end(), '\n'), before.size() - line_begin + 1);
}

}  // namespace lariat
