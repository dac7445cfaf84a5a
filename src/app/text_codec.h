// The API's text side over a model's tokenizer and chat template.
#pragma once

#include <memory>
#include <optional>

#include "api/model_context.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace lariat {

// Thread-safe. `tokenizer` outlives it.
class ModelCodec final : public TextCodec {
 public:
  // Errors: a chat template that does not parse. A model without one has none, and chat requests are refused.
  static Result<std::unique_ptr<ModelCodec>> create(const Tokenizer& tokenizer);

  Result<std::vector<int32_t>> encode(std::string_view text) const override;
  Result<std::vector<int32_t>> encode_chat(const ChatPrompt& prompt) const override;
  bool has_chat_template() const override { return template_.has_value(); }
  std::string token_bytes(int32_t id) const override;
  std::optional<int32_t> bos_id() const override { return tokenizer_.bos_id(); }

 private:
  explicit ModelCodec(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  const ChatTemplate& template_for(bool with_tools) const;

  const Tokenizer& tokenizer_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatTemplate> template_with_tools_;
};

}  // namespace lariat
