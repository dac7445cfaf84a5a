// The text side of a model with a tokenizer, as requests and answers use it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/model_context.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace lariat {

class TokenizerCodec : public TextCodec {
 public:
  // `tokenizer` must outlive the codec. A chat template that cannot be read refuses chats, with the reason.
  explicit TokenizerCodec(const Tokenizer& tokenizer);

  Result<std::vector<int32_t>> encode(std::string_view text) const override;
  Result<std::vector<int32_t>> encode_chat(const ChatPrompt& prompt) const override;
  std::string chat_refusal() const override { return chat_refusal_; }
  std::string token_bytes(int32_t id) const override { return std::string(tokenizer_.token_bytes(id)); }
  std::optional<int32_t> bos_id() const override { return tokenizer_.bos_id(); }

 private:
  std::optional<ChatTemplate> read_template(const std::string& source);

  const Tokenizer& tokenizer_;
  std::optional<ChatTemplate> plain_, with_tools_;
  std::string chat_refusal_;
};

}  // namespace lariat
