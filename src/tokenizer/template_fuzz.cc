// A chat template from an enemy, over messages with every shape. Input: the source, or a NUL, messages, a
// NUL, the source.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "tokenizer/chat_messages.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/utf8.h"

namespace {

constexpr const char* kMessages = R"([{"role":"system","content":"s <b>"},{"role":"user","content":" né 東 "},
  {"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":[1,2.5,null,true]}}}]},
  {"role":"tool","content":"r"}])";

nlohmann::ordered_json parse(std::string_view text) {
  if (!lariat::parse_json(text).ok()) return nullptr;
  return nlohmann::ordered_json::parse(text, nullptr, false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view source(reinterpret_cast<const char*>(data), size);
  nlohmann::ordered_json messages = parse(kMessages);
  if (source.starts_with('\0')) {
    const size_t nul = std::min(source.find('\0', 1), source.size());
    const auto normalized = lariat::normalize_messages(parse(source.substr(1, nul - 1)));
    if (normalized.ok()) messages = *normalized;
    source.remove_prefix(nul);
  }
  const auto chat_template = lariat::ChatTemplate::parse(source);
  if (!chat_template.ok()) return 0;
  lariat::TemplateInputs inputs;
  inputs.tools = parse(R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  inputs.kwargs = parse(R"({"x":{"k":"v"},"n":3,"l":[3,1,2]})");
  inputs.bos_token = "<s>";
  const auto out = chat_template->render(messages, inputs, {.steps_max = 20'000, .bytes_max = 4 << 20});
  if (!out.ok()) return 0;
  LARIAT_CHECK(lariat::utf8_valid(out->text));
  size_t last = 0;
  for (const auto& range : out->untrusted) {
    LARIAT_CHECK(range.begin >= last && range.begin < range.end && range.end <= out->text.size());
    last = range.end;
  }
  return 0;
}
