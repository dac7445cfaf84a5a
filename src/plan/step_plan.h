// One lockstep forward pass, as the head tells it to every rank. Data only; docs/design.md §5.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace lariat {

enum class Strategy : uint8_t { kAuto, kPassKv, kPassQ, kGather };
enum class LogitsWanted : uint8_t { kNone, kLast, kAll };

struct PlanTokenCount {
  int32_t id = 0;
  int32_t in_output = 0;
  bool in_prompt = false;
  friend bool operator==(const PlanTokenCount&, const PlanTokenCount&) = default;
};

// How the token after a row's last position is drawn. Mirrors the sampling op's parameters, field by field.
struct PlanSampling {
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint64_t output_index = 0;
  int32_t top_logprobs = -1;
  std::vector<PlanTokenCount> counts;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> banned;
  std::vector<uint64_t> allowed;
  friend bool operator==(const PlanSampling&, const PlanSampling&) = default;
};

struct PlanRow {
  RowId id;
  std::vector<std::vector<PageId>> pages;  // one logical table a cache group
  int32_t pos0 = 0;                        // resident tokens before this step's first
  int32_t n = 0;                           // new tokens, >= 1
  std::vector<int32_t> tokens;             // n ids, or empty with use_prev
  bool use_prev = false;                   // n == 1: the token sampled for this row one step ago
  Strategy strategy = Strategy::kAuto;     // kGather: a token that is decoded, not part of a prompt
  LogitsWanted wanted = LogitsWanted::kNone;
  bool sample = false;  // draw the next token from the last position's logits
  PlanSampling sampling;
  // Prompt logprobs (wanted == kAll): alternatives a position; the position's own next token is tokens[i +
  // 1], and for the last one `next_token` (-1: none known).
  int32_t prompt_logprobs = -1;
  int32_t next_token = -1;
  // Of the wanted positions, those whose logits come back themselves: new tokens [logits_first, logits_first
  // + logits_count). For checks against a reference; serving asks for none.
  int32_t logits_first = 0;
  int32_t logits_count = 0;
  friend bool operator==(const PlanRow&, const PlanRow&) = default;
};

struct StepPlan {
  Epoch epoch;
  StepId step;
  std::vector<PlanRow> rows;
  std::vector<RowId> forget;           // rows that ended: their `prev` token may be dropped
  uint64_t schedule_hash[2] = {0, 0};  // XXH3-128 of the collectives derived from this plan; 0 with one rank
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

struct PlanTokenLogprob {
  int32_t id = 0;
  float logprob = 0;
  friend bool operator==(const PlanTokenLogprob&, const PlanTokenLogprob&) = default;
};

// In place of a log-probability, which is never positive: this position is another rank's to tell.
inline constexpr float kLogprobElsewhere = 1.0f;

struct PositionLogprobs {
  float logprob = 0;  // of the token that follows
  std::vector<PlanTokenLogprob> top;
  friend bool operator==(const PositionLogprobs&, const PositionLogprobs&) = default;
};

// Logits [vocab] f32 as the LM head gave them, before sampling touched them.
struct PositionLogits {
  int32_t pos = 0;
  std::vector<float> values;
  friend bool operator==(const PositionLogits&, const PositionLogits&) = default;
};

// What one step may be asked to send back as logits, over all rows: an outcome with them fits a control
// message.
inline constexpr int64_t kLogitsBytesMax = int64_t{48} << 20;

struct RowOutcome {
  RowId id;
  int32_t token = -1;  // sampled, or -1
  PositionLogprobs token_logprobs;
  std::vector<PositionLogprobs>
      prompt;  // one a new token, if asked for; kLogprobElsewhere where not judged here
  std::vector<PositionLogits> logits;  // of the positions asked for that were judged here, ascending
  // Set when this row alone failed (NaN in its logits, no page memory): the row ends, the group goes on.
  bool failed = false;
  Errc error = Errc::kInternal;
  std::string message;
  friend bool operator==(const RowOutcome&, const RowOutcome&) = default;
};

struct StepOutcome {
  Epoch epoch;
  StepId step;
  std::vector<RowOutcome> rows;  // in the plan's order
  int64_t compute_us = 0;
  int64_t comm_wait_us = 0;  // of compute_us, spent waiting for peers
  friend bool operator==(const StepOutcome&, const StepOutcome&) = default;
};

// What a rank says of itself before its first step; the head refuses a mismatch by name.
struct Hello {
  uint32_t protocol_major = 1;
  uint32_t protocol_minor = 0;
  std::string build_id;
  uint64_t weights_hash[2] = {0, 0};
  std::string kv_type;  // "f32", "bf16", "f16"
  std::vector<int32_t> store_pattern{0};
  std::vector<int32_t> compute_pattern{0};
  int32_t interleave = 1;
  int32_t ring_block = 0;
  std::string device;  // "cpu: <model name>, avx512, 2 threads"
  int32_t rank = 0;
  int32_t world = 1;
  int64_t pid = 0;
  int32_t page_tokens = 0;
  int32_t pages_total = 0;
  int32_t cache_groups = 1;
  int32_t vocab = 0;
};

}  // namespace lariat
