// The two shapes of logprobs: chat's list of entries and completions' parallel arrays; private to api/.
#pragma once

#include <vector>

#include "api/answer.h"

namespace lariat {

// What stands for -inf and for anything below it: JSON has no infinity (OpenAI's own choice of number).
constexpr double kLogprobFloor = -9999.0;

// Finite, at most 0, in the shortest decimal form of the float.
double wire_logprob(float logprob);

// {"token","logprob","bytes","top_logprobs":[..]}
WireJson chat_logprob(const TokenReport& token);

WireJson empty_completion_logprobs();
// Appends to tokens, token_logprobs, top_logprobs, text_offset. `known` false: the first token of a text.
void append_completion_logprob(const TokenReport& token, bool known, int64_t offset, WireJson& arrays);
// Appends the arrays of `more` to those of `arrays`.
void append_arrays(const WireJson& more, WireJson& arrays);

}  // namespace lariat
