#include "app/text_codec.h"

#include <ctime>

#include "tokenizer/chat_encode.h"
#include "tokenizer/chat_messages.h"

namespace lariat {
namespace {

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace

Result<std::unique_ptr<ModelCodec>> ModelCodec::create(const Tokenizer& tokenizer) {
  auto codec = std::unique_ptr<ModelCodec>(new ModelCodec(tokenizer));
  const TokenizerConfig& config = tokenizer.config();
  if (!config.chat_template.empty()) {
    LARIAT_ASSIGN(codec->template_, ChatTemplate::parse(config.chat_template));
  }
  if (!config.chat_template_with_tools.empty()) {
    LARIAT_ASSIGN(codec->template_with_tools_, ChatTemplate::parse(config.chat_template_with_tools));
  }
  return codec;
}

Result<std::vector<int32_t>> ModelCodec::encode(std::string_view text) const {
  return tokenizer_.encode(text);
}

const ChatTemplate& ModelCodec::template_for(bool with_tools) const {
  return with_tools && template_with_tools_ ? *template_with_tools_ : *template_;
}

Result<std::vector<int32_t>> ModelCodec::encode_chat(const ChatPrompt& prompt) const {
  if (!template_) return make_error(Errc::kInvalidArgument, "the model has no chat template", "messages");
  const ChatTemplate& chat = template_for(!prompt.tools.empty());
  if (!prompt.tools.empty() && !chat.mentions("tools")) {
    return make_error(Errc::kInvalidArgument, "tools: this model's chat template does not know tools",
                      "tools");
  }
  LARIAT_ASSIGN(const auto messages,
                normalize_messages(prompt.messages, {.keep_developer = chat.mentions("developer")}));
  TemplateInputs inputs;
  inputs.tools = prompt.tools;
  inputs.kwargs = prompt.variables;
  inputs.bos_token = tokenizer_.config().bos_token;
  inputs.eos_token = tokenizer_.config().eos_token;
  inputs.now = local_now();
  LARIAT_ASSIGN(const RenderedChat rendered, chat.render(messages, inputs));
  return lariat::encode_chat(tokenizer_, rendered);
}

std::string ModelCodec::token_bytes(int32_t id) const {
  return std::string(tokenizer_.token_bytes(id));
}

}  // namespace lariat
