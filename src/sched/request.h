// What a client asked for, after parsing and tokenizing: the request as head and scheduler know it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lariat {

// Time is an argument everywhere in the scheduler; nothing in sched/ reads a clock.
using Time = std::chrono::steady_clock::time_point;

struct SamplingSettings {
  float temperature = 1.0f;
  int32_t top_k = 0;  // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias;
};

struct GenerateRequest {
  std::string id;               // response id, "chatcmpl-…" or "cmpl-…"
  std::vector<int32_t> prompt;  // at least one token
  int32_t n = 1;                // choices; choice c draws with key (seed, c)
  int32_t max_tokens = 0;       // new tokens at most; already clamped to the context
  int32_t min_tokens = 0;       // end ids are banned before it
  bool ignore_eos = false;
  std::vector<int32_t> end_ids;   // tokens that end a choice ("stop"), not part of its text
  std::vector<std::string> stop;  // strings that end a choice; none is empty
  SamplingSettings sampling;
  std::optional<uint64_t> seed;  // absent: the head draws one
  int32_t top_logprobs = -1;     // -1: no logprobs
  int32_t prompt_logprobs = -1;  // completions' echo with logprobs
  std::string cache_salt;
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };

}  // namespace lariat
