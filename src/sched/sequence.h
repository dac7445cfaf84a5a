// One choice of one request as the scheduler takes it, and what it says about it: data only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "plan/step_plan.h"
#include "sched/request.h"

namespace lariat {

// Choices of one request share it. `n`, `id`, `stop`, `seed` and `cache_salt` of the request are not read
// here: the head makes one spec a choice and knows stop strings.
struct SequenceSpec {
  RowId id;  // never used before
  std::shared_ptr<const GenerateRequest> request;
  uint32_t choice = 0;
  uint64_t seed = 0;             // draws have key (seed, choice), counter the output index
  bool prompt_logprobs = false;  // this choice reports the request's prompt_logprobs (one of n should)
};

// What one step did for one row. Tokens of a row arrive in order and each once, whatever was recomputed.
struct SequenceEvent {
  RowId id;
  // Log-probabilities of prompt tokens 1, 2, .. that became known, in order, each once; all of them come
  // before or with the first token. (Token 0 follows nothing and has none.)
  std::vector<PositionLogprobs> prompt;
  std::optional<int32_t> token;               // generated in this step
  uint64_t output_index = 0;                  // of `token`: 0 first
  bool end_token = false;                     // `token` is an end id: counted in usage, not part of the text
  PositionLogprobs token_logprobs;            // if the request asked
  FinishReason finish = FinishReason::kNone;  // otherwise the row's last event; its id is forgotten
  Error error;                                // with kError
};

enum class RowState : uint8_t { kWaiting, kPrefill, kDecode };

struct RowProgress {
  RowId id;
  RowState state = RowState::kWaiting;
  int64_t prompt_tokens = 0;
  int64_t resident_tokens = 0;  // whose K and V are stored, of prompt and output
  int64_t output_tokens = 0;
  int32_t pages = 0;
  int32_t preemptions = 0;
  Time arrived;
  std::optional<Time> started;      // first taken into the batch
  std::optional<Time> first_token;  // generated
};

}  // namespace lariat
