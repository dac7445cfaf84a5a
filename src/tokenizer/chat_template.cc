#include "tokenizer/chat_template.h"

#include <fmt/core.h>

#include "tokenizer/chat_messages.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_parser.h"
#include "tokenizer/utf8.h"

namespace lariat {

struct ChatTemplate::Program {
  std::string source;
  jinja::Body body;
};

namespace {

using jinja::Text;
using jinja::Value;

// Roles become parts of control tokens ('<|' + role + '|>'), so the known ones count as the template's text.
Value message_value(const nlohmann::ordered_json& message) {
  Value plain = jinja::from_json(message);
  if (!plain.dict()) return plain;
  jinja::Dict d = *plain.dict();
  if (const Value* role = d.find("role"); role && role->text() && is_known_role(role->text()->bytes)) {
    d.put(Text::trusted("role"), Value::of(Text::trusted(role->text()->bytes)));
  }
  return Value(std::make_shared<const jinja::Dict>(std::move(d)));
}

Value messages_value(const nlohmann::ordered_json& messages, jinja::Context& context) {
  std::vector<Value> out;
  for (const auto& message : messages) out.push_back(message_value(message));
  return context.list(std::move(out));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return make_error(Errc::kUnsupported,
                      fmt::format("chat template of {} bytes (limit {})", source.size(), kSourceBytesMax));
  }
  if (!utf8_valid(source)) return make_error(Errc::kCorruptData, "chat template: invalid UTF-8");
  try {
    return ChatTemplate(std::make_shared<const Program>(Program{std::string(source), jinja::parse(source)}));
  } catch (jinja::Fault& f) {
    return make_error(f.error.code, std::move(f.error.message));
  }
}

Result<RenderedChat> ChatTemplate::render(const nlohmann::ordered_json& messages,
                                          const TemplateInputs& inputs, const TemplateLimits& limits) const {
  if (!messages.is_array()) return make_error(Errc::kInvalidArgument, "messages must be a list", "messages");
  try {
    jinja::Context context(jinja::Meter(limits.steps_max, limits.bytes_max), inputs.now);
    std::vector<std::pair<std::string, Value>> globals;
    globals.emplace_back("messages", messages_value(messages, context));
    // As in transformers: none, not undefined, where a request has no tools.
    const bool has_tools = inputs.tools.is_array() && !inputs.tools.empty();
    globals.emplace_back("tools", has_tools ? jinja::from_json(inputs.tools) : Value::none());
    globals.emplace_back("add_generation_prompt", Value::of(inputs.add_generation_prompt));
    globals.emplace_back("bos_token", Value::of(Text::trusted(inputs.bos_token)));
    globals.emplace_back("eos_token", Value::of(Text::trusted(inputs.eos_token)));
    if (inputs.kwargs.is_object()) {
      // What we set ourselves is not for a request to change: BOS as user text would no longer be a token.
      for (const auto& [taken, unused] : globals) {
        if (inputs.kwargs.contains(taken))
          return make_error(Errc::kInvalidArgument,
                            fmt::format("chat_template_kwargs.{}: cannot be set here", taken),
                            "chat_template_kwargs");
      }
      for (const auto& [name, value] : inputs.kwargs.items()) {
        globals.emplace_back(name, jinja::from_json(value));
      }
    }
    Text out = jinja::run(program_->body, std::move(globals), context);
    return RenderedChat{std::move(out.bytes), std::move(out.untrusted)};
  } catch (jinja::Fault& f) {
    return std::move(f.error);
  }
}

bool ChatTemplate::mentions(std::string_view word) const {
  return program_->source.find(word) != std::string::npos;
}

}  // namespace lariat
