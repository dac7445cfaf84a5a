// A model's chat template: messages to prompt text, knowing which parts of it came from the request.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/byte_range.h"

namespace lariat {

struct TemplateInputs {
  nlohmann::ordered_json tools;  // null or a list of OpenAI tool objects; an empty one counts as null
  bool add_generation_prompt = true;
  nlohmann::ordered_json kwargs;  // null or an object: chat_template_kwargs, e.g. {"enable_thinking": false}
  std::string bos_token, eos_token;
  std::tm now = {};  // local time, for strftime_now
};

struct TemplateLimits {
  uint64_t steps_max = 20'000'000;
  uint64_t bytes_max = 256ull << 20;  // of all values made on the way
};

struct RenderedChat {
  std::string text;                  // valid UTF-8
  std::vector<ByteRange> untrusted;  // sorted and disjoint: what came from messages, tools and kwargs
};

// Jinja as chat templates use it (trim_blocks, lstrip_blocks, loop controls, {% generation %}), with Python's
// semantics. Immutable; render may run concurrently.
class ChatTemplate {
 public:
  static constexpr size_t kSourceBytesMax = 1 << 20;

  // kCorruptData (syntax) or kUnsupported (a tag, filter or test we do not have), with the line.
  static Result<ChatTemplate> parse(std::string_view source);

  // `messages`: a list as normalize_messages makes it. Strings in it are untrusted, except roles, which
  // normalize_messages has checked against a closed set.
  // kInvalidArgument with param "messages": the template's own text if it calls raise_exception, else what it
  // could not do with the input. kResourceExhausted beyond the limits.
  Result<RenderedChat> render(const nlohmann::ordered_json& messages, const TemplateInputs& inputs,
                              const TemplateLimits& limits = {}) const;

  // Whether the source names this word anywhere, e.g. a role it treats apart.
  bool mentions(std::string_view word) const;

 private:
  struct Program;
  explicit ChatTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace lariat
