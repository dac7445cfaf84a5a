// What a request is read against: the served model's name, sizes, defaults and its text side.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lariat {

// One chat as the request has it; keys keep their order, since templates print them.
struct ChatPrompt {
  nlohmann::ordered_json messages;   // whatever stood under "messages"
  nlohmann::ordered_json tools;      // a list of OpenAI tools, or null
  nlohmann::ordered_json variables;  // chat_template_kwargs: an object, or null
};

// Text to ids and back. Calls are const and may come from several threads at once.
class TextCodec {
 public:
  virtual ~TextCodec() = default;

  // A raw prompt: special tokens written in it are parsed, BOS is added if the tokenizer adds one.
  virtual Result<std::vector<int32_t>> encode(std::string_view text) const = 0;
  // Checked, rendered with the generation prompt, encoded; text of messages never becomes a special token.
  // kInvalidArgument with param "messages..." or "tools...", and the template's own text where it raises one.
  virtual Result<std::vector<int32_t>> encode_chat(const ChatPrompt& prompt) const = 0;
  virtual bool has_chat_template() const = 0;
  // The bytes the token stands for, a special token's written form included; empty for an id without a token.
  virtual std::string token_bytes(int32_t id) const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
};

// The model's own sampling settings (generation_config.json), where it has any.
struct SamplingDefaults {
  std::optional<float> temperature;  // 0 with "do_sample": false
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::vector<int32_t> end_ids;  // all that end a generation
};

struct ModelContext {
  std::string id;
  const TextCodec* codec = nullptr;  // without one, completions take token ids and chat is refused
  SamplingDefaults defaults;
  int64_t context_tokens =
      0;                      // positions a request may have, asked for or the model's, whatever memory holds
  int64_t kv_tokens_max = 0;  // tokens the KV memory holds for one request; 0: no bound of its own
  int64_t vocab = 0;
  int64_t created = 0;  // unix seconds, of /v1/models

  bool memory_binds() const { return kv_tokens_max > 0 && kv_tokens_max < context_tokens; }
  // Tokens a prompt may have.
  int64_t tokens_max() const { return memory_binds() ? kv_tokens_max : context_tokens; }
  // What bounds a prompt, for messages: "this model's maximum context length is 4096 tokens".
  std::string limit_text() const;
};

}  // namespace lariat
