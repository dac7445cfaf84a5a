// Request bodies of the API, parsed strictly into what the engine takes. Fields and policies: docs/api.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"
#include "api/model_context.h"
#include "sched/request.h"

namespace lariat {

enum class ApiKind : uint8_t { kChat, kCompletion };

// One request of a client: one generation a prompt, `n` choices each. The choice's index in the answer is
// prompt * n + choice.
struct ParsedRequest {
  ApiKind kind = ApiKind::kChat;
  std::string id;       // of the response; the engine knows generation g as its own `id`
  int64_t created = 0;  // unix seconds
  std::string model;
  int32_t n = 1;
  std::vector<GenerateRequest> generations;  // at least one
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool return_token_ids = false;
  bool echo = false;
  std::vector<std::string> echo_text;  // with echo: one a prompt, valid UTF-8
};

constexpr int32_t kChoicesMax = 128;  // prompts * n of one request
constexpr int32_t kTopLogprobsMax = 20;
constexpr size_t kStopStringsMax = 4;
constexpr size_t kStopBytesMax = 1024;

// `body` is the text as it came. Errors are 400 with the field and its path, 404 for another model's name.
// Cost: linear in the body. Thread-safe.
ApiResult<ParsedRequest> parse_chat(std::string_view body, const ModelContext& model);
ApiResult<ParsedRequest> parse_completion(std::string_view body, const ModelContext& model);

// {"prompt": text} -> {"tokens": [..], "count": n}
ApiResult<std::string> answer_tokenize(std::string_view body, const ModelContext& model);
// {"tokens": [..]} -> {"prompt": text}
ApiResult<std::string> answer_detokenize(std::string_view body, const ModelContext& model);

}  // namespace lariat
