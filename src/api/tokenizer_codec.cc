#include "api/tokenizer_codec.h"

#include <ctime>

#include "api/api_error.h"
#include "tokenizer/chat_encode.h"
#include "tokenizer/chat_messages.h"

namespace lariat {
namespace {

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm out = {};
  localtime_r(&now, &out);
  return out;
}

}  // namespace

TokenizerCodec::TokenizerCodec(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  const TokenizerConfig& config = tokenizer.config();
  plain_ = read_template(config.chat_template);
  with_tools_ = read_template(config.chat_template_with_tools);
  if (!plain_ && chat_refusal_.empty()) {
    chat_refusal_ = "this model has no chat template: give a prompt to /v1/completions";
  }
}

std::optional<ChatTemplate> TokenizerCodec::read_template(const std::string& source) {
  if (source.empty()) return std::nullopt;
  Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (parsed.ok()) return std::move(parsed).value();
  chat_refusal_ = "this model's chat template cannot be used: " + parsed.error().message;
  return std::nullopt;
}

Result<std::vector<int32_t>> TokenizerCodec::encode(std::string_view text) const {
  return tokenizer_.encode(text);
}

Result<std::vector<int32_t>> TokenizerCodec::encode_chat(const ChatPrompt& prompt) const {
  LARIAT_CHECK(plain_.has_value(), "{}", chat_refusal_);
  const bool tools = !prompt.tools.is_null();
  const ChatTemplate& chat = tools && with_tools_ ? *with_tools_ : *plain_;
  if (tools && !chat.mentions("tools"))
    return field_error("tools", "this model's chat template takes no tools");
  NormalizeOptions options;
  options.keep_developer = chat.mentions("developer");
  LARIAT_ASSIGN(const nlohmann::ordered_json messages, normalize_messages(prompt.messages, options));
  TemplateInputs inputs;
  inputs.tools = prompt.tools;
  inputs.kwargs = prompt.variables;
  inputs.bos_token = tokenizer_.config().bos_token;
  inputs.eos_token = tokenizer_.config().eos_token;
  inputs.now = local_now();
  LARIAT_ASSIGN(const RenderedChat rendered, chat.render(messages, inputs));
  return lariat::encode_chat(tokenizer_, rendered);
}

}  // namespace lariat
