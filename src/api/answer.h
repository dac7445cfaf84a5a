// Turns what the engine reports into OpenAI's answers: one body, or the payloads of a stream.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "api/echo_text.h"
#include "api/request.h"
#include "api/wire.h"

namespace lariat {

// The engine's report in the API's words: http/ fills it from head's events.
struct TokenReport {
  int32_t id = 0;
  std::string bytes;
  float logprob = 0;
  std::vector<TokenReport> top;  // empty `top` inside
};

struct ChoiceReport {
  int32_t choice = 0;
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<TokenReport> logprobs;
  FinishReason finish = FinishReason::kNone;
};

struct UsageReport {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

// One answer in the making. Feed it every report of every generation in order; with a stream, `payloads`
// takes the JSON texts to send for it. Concatenated over a stream, text and logprobs equal those of body().
class Answer {
 public:
  // `codec` may be null. The request's prompts are not needed any more once this is built.
  Answer(const ParsedRequest& request, const TextCodec* codec);

  // The tokens of generation g's prompt with their logprobs, before any of its choices (echo).
  void add_prompt(size_t g, std::vector<TokenReport> tokens);
  void add(size_t g, ChoiceReport report, std::vector<std::string>* payloads);
  void finish(size_t g, UsageReport usage);

  bool finished() const { return finished_ == generations_.size(); }
  // The whole answer without stream; every generation has finished.
  std::string body() const;
  // The extra chunk of include_usage, without choices.
  std::string usage_payload() const;

 private:
  struct Choice {
    bool started = false;
    std::string text;
    std::vector<int32_t> token_ids;
    WireJson logprobs;  // chat: array of entries; completions: the four parallel arrays
    CharacterOffsets offsets;
    FinishReason finish = FinishReason::kNone;
  };
  struct Generation {
    std::vector<Choice> choices;
    std::vector<TokenReport> prompt_tokens;
    std::string echo;
    bool bos_hidden = false;  // the prompt's first token is ours and not in the text
    UsageReport usage;
  };

  void start(Generation& g, Choice& c, int32_t index, std::vector<std::string>* payloads);
  WireJson logprobs_of(Choice& c, const std::vector<TokenReport>& tokens) const;
  WireJson prompt_logprobs(const Generation& g, Choice& c) const;
  WireJson envelope(bool chunk) const;
  WireJson chunk_choice(int32_t index, std::string text, WireJson logprobs) const;
  void send(WireJson choice, std::vector<std::string>& payloads) const;
  WireJson usage_json() const;

  const ApiKind kind_;
  const std::string id_, model_;
  const int64_t created_;
  const int32_t n_;
  const bool include_usage_, logprobs_, return_token_ids_;
  std::vector<Generation> generations_;
  size_t finished_ = 0;
};

}  // namespace lariat
