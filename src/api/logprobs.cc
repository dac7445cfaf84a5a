#include "api/logprobs.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

namespace lariat {
namespace {

WireJson bytes_json(const std::string& bytes) {
  WireJson out = WireJson::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

WireJson plain_entry(const TokenReport& token) {
  return {{"token", token_string(token.bytes)},
          {"logprob", wire_logprob(token.logprob)},
          {"bytes", bytes_json(token.bytes)}};
}

}  // namespace

double wire_logprob(float logprob) {
  if (!(logprob > kLogprobFloor)) return kLogprobFloor;  // NaN too
  if (logprob >= 0) return 0;
  // Through the float's own decimal form: -0.1f is -0.1 on the wire, not -0.10000000149011612.
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, logprob);
  double out = logprob;
  std::from_chars(text, written.ptr, out);
  return out;
}

WireJson chat_logprob(const TokenReport& token) {
  WireJson out = plain_entry(token);
  WireJson top = WireJson::array();
  for (const TokenReport& t : token.top) top.push_back(plain_entry(t));
  out["top_logprobs"] = std::move(top);
  return out;
}

WireJson empty_completion_logprobs() {
  return {{"tokens", WireJson::array()},
          {"token_logprobs", WireJson::array()},
          {"top_logprobs", WireJson::array()},
          {"text_offset", WireJson::array()}};
}

void append_completion_logprob(const TokenReport& token, bool known, int64_t offset, WireJson& arrays) {
  arrays["tokens"].push_back(token_string(token.bytes));
  arrays["text_offset"].push_back(offset);
  if (!known) {
    arrays["token_logprobs"].push_back(nullptr);
    arrays["top_logprobs"].push_back(nullptr);
    return;
  }
  arrays["token_logprobs"].push_back(wire_logprob(token.logprob));
  WireJson top = WireJson::object();
  for (const TokenReport& t : token.top) top[token_string(t.bytes)] = wire_logprob(t.logprob);
  // The chosen token is always listed, as the API promises.
  top[token_string(token.bytes)] = wire_logprob(token.logprob);
  arrays["top_logprobs"].push_back(std::move(top));
}

void append_arrays(const WireJson& more, WireJson& arrays) {
  for (const auto& [name, list] : more.items()) {
    for (const auto& item : list) arrays[name].push_back(item);
  }
}

}  // namespace lariat
