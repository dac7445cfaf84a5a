// One sequence inside the scheduler: its tokens, how far its K and V are stored, its pages. Internal to
// sched/.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "plan/step_plan.h"
#include "sched/sequence.h"

namespace lariat {

// Token counts that penalties need, kept as tokens come; empty while no penalty is active.
class PenaltyCounts {
 public:
  PenaltyCounts(const SamplingSettings& sampling, const std::vector<int32_t>& prompt);
  void add_output(int32_t token);
  const std::vector<PlanTokenCount>& counts() const { return counts_; }  // ids unique, in order of appearance

 private:
  PlanTokenCount& of(int32_t token);

  bool active_ = false;
  std::vector<PlanTokenCount> counts_;
  std::unordered_map<int32_t, size_t> at_;
};

// What the step in flight does for a row: enough to take its outcome in.
struct PlannedRow {
  RowId id;
  int32_t pos0 = 0;
  int32_t n = 0;
  bool sample = false;
  bool prompt_logprobs = false;
};

class Row {
 public:
  Row(SequenceSpec spec, uint64_t arrival, Time now);

  RowId id() const { return spec_.id; }
  const GenerateRequest& request() const { return *spec_.request; }
  uint64_t arrival() const { return arrival_; }  // order of add(): smaller is older

  int64_t prompt_tokens() const { return static_cast<int64_t>(request().prompt.size()); }
  int64_t length() const { return prompt_tokens() + static_cast<int64_t>(output_.size()); }
  int64_t remaining() const { return length() - resident_; }  // tokens known whose K and V are not stored
  bool decoding() const { return !output_.empty() && remaining() == 1; }
  int64_t resident() const { return resident_; }
  int64_t output_tokens() const { return static_cast<int64_t>(output_.size()); }

  // The plan's row for the next n <= remaining() tokens, with the pages that hold them; the last of the known
  // tokens is sampled after. vocab: ids outside it are not worth a ban.
  PlanRow plan(int64_t n, int32_t page_tokens, int32_t vocab) const;
  // Takes the outcome of that row in, already checked against the plan. limit: tokens that can be stored. The
  // event may be empty of news.
  SequenceEvent apply(const PlannedRow& planned, const RowOutcome& outcome, int64_t limit, Time now);
  // K and V are gone; tokens stay, and none is drawn again.
  void lose_kv() { resident_ = 0; }

  RowProgress progress(bool running) const;

  // Bookkeeping of the batch, not of the sequence.
  std::vector<PageId> pages;
  uint64_t last_served = 0;  // step in which it last got tokens, or was admitted
  int32_t overtaken = 0;     // times a younger row was admitted first
  int32_t preemptions = 0;
  bool in_flight = false;
  bool cancelled = false;
  bool seen_by_group = false;  // was in a step of this epoch
  std::optional<Time> started;

 private:
  bool wants_prompt_logprobs() const { return prompt_known_ + 1 < prompt_tokens() && spec_.prompt_logprobs; }
  int32_t token_at(int64_t pos) const;
  bool is_end(int32_t token) const;
  PlanSampling sampling(int32_t vocab) const;
  FinishReason emit(int32_t token, int64_t limit, SequenceEvent& event);

  SequenceSpec spec_;
  uint64_t arrival_ = 0;
  Time arrived_;
  std::optional<Time> first_token_;
  std::vector<int32_t> output_;
  int64_t resident_ = 0;
  int64_t prompt_known_ = 0;  // prompt log-probabilities reported: those of tokens 1..prompt_known_
  PenaltyCounts penalties_;
};

}  // namespace lariat
