// From one row of logits to a token: penalties, bias, truncation, a counter-based draw, log-probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lariat {

struct TokenCount {
  int32_t id = 0;
  int32_t in_output = 0;   // times generated so far (presence, frequency, repetition)
  bool in_prompt = false;  // repetition only
  friend bool operator==(const TokenCount&, const TokenCount&) = default;
};

// A bias of this size is no number to add but certain, whatever penalties make of the logits: at or below its
// negative the token is banned; at or above it only such tokens, if a mask leaves any, can be drawn.
constexpr float kBiasCertain = 100.0f;

struct SampleParams {
  float temperature = 1.0f;  // 0: greedy (lowest id among equal maxima)
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;  // Philox key: (seed, choice); counter: output index
  uint32_t choice = 0;
  uint64_t output_index = 0;
  int32_t top_logprobs = -1;       // -1: no logprobs; 0..20: the chosen token's and that many alternatives
  std::vector<TokenCount> counts;  // only ids with a count, unique
  std::vector<std::pair<int32_t, float>> logit_bias;  // unique ids inside the vocabulary; see kBiasCertain
  std::vector<int32_t> banned;                        // for example end ids before min_tokens
  std::vector<uint64_t> allowed;                      // bit mask over the vocabulary; empty: all
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob =
      0;  // natural log, of the model's own distribution (before penalties, bias, temperature); <= 0
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

struct SampleResult {
  int32_t token = 0;
  float logprob = 0;              // set if top_logprobs >= 0
  std::vector<TokenLogprob> top;  // descending, ties by id; exactly min(top_logprobs, vocabulary) entries
};

// Order: logprobs of the raw distribution are read; then repetition penalty (positive logits divided,
// negative multiplied, once a token of prompt or output), frequency * count + presence (output only), bias,
// mask, bias that forces, temperature, top_k, top_p (smallest set with cumulative probability >= top_p, at
// least one), min_p (relative to the best), draw. `logits` [vocab] is scratch afterwards. kInternal if a
// logit is NaN or all are -inf, kInvalidArgument if a bias bans all that is left (the request at fault ends,
// its neighbours do not). O(V) except where a sort of the surviving candidates is needed.
Result<SampleResult> sample(std::span<float> logits, const SampleParams& params);

// log softmax of logits at `token` and the top n, without sampling (prompt logprobs). Same errors.
Result<SampleResult> logprobs_of(std::span<const float> logits, int32_t token, int32_t top_logprobs);

}  // namespace lariat
