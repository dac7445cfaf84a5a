// A codec for tests: one token a byte, BOS in front, and one special token with a written form.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "api/model_context.h"
#include "tokenizer/chat_messages.h"

namespace lariat {

class ByteCodec : public TextCodec {
 public:
  static constexpr int32_t kBos = 256, kEnd = 257, kVocab = 300;

  bool adds_bos = true;
  bool chat = true;
  // Ids above the bytes' that stand for strings of their own (part of a character, several letters).
  std::vector<std::pair<int32_t, std::string>> extra;
  std::string template_fault;  // what the template raises, if not empty

  Result<std::vector<int32_t>> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    if (adds_bos) ids.push_back(kBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  // <role:content> of each message, then tools and variables as JSON where given.
  Result<std::vector<int32_t>> encode_chat(const ChatPrompt& prompt) const override {
    if (!template_fault.empty()) return make_error(Errc::kInvalidArgument, template_fault);
    LARIAT_ASSIGN(const auto messages, normalize_messages(prompt.messages));
    return encode(rendered(messages, prompt));
  }
  static std::string rendered(const nlohmann::ordered_json& messages, const ChatPrompt& prompt) {
    std::string text;
    for (const auto& m : messages) {
      text += "<" + m["role"].get<std::string>() + ":" + m["content"].get<std::string>() + ">";
      if (m.contains("tool_calls")) text += m["tool_calls"].dump();
    }
    if (!prompt.tools.is_null()) text += prompt.tools.dump();
    if (!prompt.variables.is_null()) text += prompt.variables.dump();
    return text;
  }
  bool has_chat_template() const override { return chat; }
  std::string token_bytes(int32_t id) const override {
    if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
    if (id == kBos) return "<bos>";
    if (id == kEnd) return "<end>";
    const auto it = std::find_if(extra.begin(), extra.end(), [id](const auto& e) { return e.first == id; });
    return it == extra.end() ? "" : it->second;
  }
  std::optional<int32_t> bos_id() const override { return adds_bos ? std::optional(kBos) : std::nullopt; }
};

inline ModelContext byte_model(const TextCodec& codec, int64_t context = 4096) {
  ModelContext m;
  m.id = "toy";
  m.codec = &codec;
  m.context_tokens = context;
  m.vocab = ByteCodec::kVocab;
  m.defaults.end_ids = {ByteCodec::kEnd};
  return m;
}

}  // namespace lariat
