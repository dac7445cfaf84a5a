#include "comm/gloo/obituary.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

namespace lariat {
namespace {

constexpr size_t kParamMax = 100;
constexpr char kOrderly = 0x40;  // beside the code

}  // namespace

// [code] [param] 0 [message] 0..., each cut to its room.
std::string rank_name(int32_t rank) {
  return fmt::format("rank {}", rank);
}

Error peer_gone(int32_t peer, const std::string& how) {
  return make_error(Errc::kUnavailable, fmt::format("{} is gone: {}", rank_name(peer), how), rank_name(peer));
}

std::vector<char> write_obituary(const Obituary& obituary) {
  const Error& why = obituary.why;
  std::string text(1, static_cast<char>(static_cast<char>(why.code) | (obituary.orderly ? kOrderly : 0)));
  text += why.param.substr(0, kParamMax);
  text += '\0';
  text += why.message.substr(0, kObituaryBytes - text.size());
  text.resize(kObituaryBytes, '\0');
  return {text.begin(), text.end()};
}

Obituary read_obituary(const std::vector<char>& text, int32_t from) {
  const auto param_end = std::find(text.begin() + 1, text.end(), '\0');
  const int code = text.front() & ~kOrderly;
  if (code < 0 || code > static_cast<int>(Errc::kInternal) || param_end == text.end()) {
    return {make_error(Errc::kUnavailable, fmt::format("rank {} ended for a reason it garbled", from),
                       rank_name(from))};
  }
  const auto message_end = std::find(param_end + 1, text.end(), '\0');
  return {make_error(static_cast<Errc>(code), std::string(param_end + 1, message_end),
                     std::string(text.begin() + 1, param_end)),
          (text.front() & kOrderly) != 0};
}

}  // namespace lariat
