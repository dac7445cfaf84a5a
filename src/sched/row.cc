#include "sched/row.h"

#include <algorithm>

#include "sched/sampling.h"

namespace lariat {

PenaltyCounts::PenaltyCounts(const SamplingSettings& sampling, const std::vector<int32_t>& prompt) {
  const bool repetition = sampling.repetition_penalty != 1.0f;
  active_ = repetition || sampling.presence_penalty != 0.0f || sampling.frequency_penalty != 0.0f;
  if (!repetition) return;  // the others count output only
  for (const int32_t token : prompt) of(token).in_prompt = true;
}

void PenaltyCounts::add_output(int32_t token) {
  if (active_) ++of(token).in_output;
}

PlanTokenCount& PenaltyCounts::of(int32_t token) {
  const auto [it, inserted] = at_.try_emplace(token, counts_.size());
  if (inserted) counts_.push_back({.id = token, .in_output = 0, .in_prompt = false});
  return counts_[it->second];
}

Row::Row(SequenceSpec spec, uint64_t arrival, Time now)
    : spec_(std::move(spec)),
      arrival_(arrival),
      arrived_(now),
      penalties_(spec_.request->sampling, spec_.request->prompt) {}

int32_t Row::token_at(int64_t pos) const {
  return pos < prompt_tokens() ? request().prompt[static_cast<size_t>(pos)]
                               : output_[static_cast<size_t>(pos - prompt_tokens())];
}

bool Row::is_end(int32_t token) const {
  const auto& ends = request().end_ids;
  return !request().ignore_eos && std::find(ends.begin(), ends.end(), token) != ends.end();
}

PlanSampling Row::sampling(int32_t vocab) const {
  const GenerateRequest& r = request();
  PlanSampling s = sampling_of(r);
  s.seed = spec_.seed;
  s.choice = spec_.choice;
  s.output_index = output_.size();
  s.counts = penalties_.counts();
  if (!r.ignore_eos && output_tokens() < r.min_tokens)
    for (const int32_t id : r.end_ids)
      if (id >= 0 && id < vocab) s.banned.push_back(id);
  return s;
}

PlanRow Row::plan(int64_t n, int32_t page_tokens, int32_t vocab) const {
  LARIAT_CHECK(n >= 1 && n <= remaining(), "row {}: {} of {} tokens", id().get(), n, remaining());
  const int64_t end = resident_ + n;
  const int64_t pages_needed = (end + page_tokens - 1) / page_tokens;
  LARIAT_CHECK(pages_needed <= static_cast<int64_t>(pages.size()), "row {} has {} pages for {} tokens",
               id().get(), pages.size(), end);
  PlanRow row;
  row.id = id();
  row.pages.emplace_back(pages.begin(), pages.begin() + pages_needed);
  row.pos0 = static_cast<int32_t>(resident_);
  row.n = static_cast<int32_t>(n);
  row.tokens.reserve(static_cast<size_t>(n));
  for (int64_t pos = resident_; pos < end; ++pos) row.tokens.push_back(token_at(pos));
  if (n == 1 && resident_ >= static_cast<int64_t>(request().prompt.size())) row.strategy = Strategy::kGather;
  if (end == length() && output_tokens() < request().max_tokens) {
    row.sample = true;
    row.wanted = LogitsWanted::kLast;
    row.sampling = sampling(vocab);
  }
  // Position i tells of token i + 1, so the prompt's last position tells of none of its tokens.
  if (wants_prompt_logprobs() && end > prompt_known_) {
    row.wanted = LogitsWanted::kAll;
    row.prompt_logprobs = std::max(request().prompt_logprobs, 0);
    if (end < length()) row.next_token = token_at(end);
  }
  return row;
}

FinishReason Row::emit(int32_t token, int64_t limit, SequenceEvent& event) {
  event.token = token;
  event.output_index = output_.size();
  event.end_token = is_end(token);
  output_.push_back(token);
  penalties_.add_output(token);
  if (event.end_token) return FinishReason::kStop;  // also at the limit
  if (output_tokens() >= request().max_tokens) return FinishReason::kLength;
  // The last token need not be stored: a full context still gives one.
  return length() > limit ? FinishReason::kLength : FinishReason::kNone;
}

SequenceEvent Row::apply(const PlannedRow& planned, const RowOutcome& outcome, int64_t limit, Time now) {
  SequenceEvent event;
  event.id = id();
  if (outcome.failed) {
    event.finish = FinishReason::kError;
    event.error = make_error(outcome.error, outcome.message);
    return event;
  }
  resident_ = planned.pos0 + planned.n;
  if (planned.prompt_logprobs) {
    const int64_t known_end = std::min(resident_, prompt_tokens() - 1);
    for (int64_t pos = std::max<int64_t>(planned.pos0, prompt_known_); pos < known_end; ++pos)
      event.prompt.push_back(outcome.prompt[static_cast<size_t>(pos - planned.pos0)]);
    prompt_known_ = std::max(prompt_known_, known_end);
  }
  if (planned.sample) {
    if (!first_token_) first_token_ = now;
    event.token_logprobs = outcome.token_logprobs;
    event.finish = emit(outcome.token, limit, event);
  } else if (remaining() == 0) {
    event.finish = FinishReason::kLength;  // max_tokens 0: the prompt was all that was asked
  }
  return event;
}

RowProgress Row::progress(bool running) const {
  RowProgress p;
  p.id = id();
  p.state = !running ? RowState::kWaiting : decoding() ? RowState::kDecode : RowState::kPrefill;
  p.prompt_tokens = prompt_tokens();
  p.resident_tokens = resident_;
  p.output_tokens = output_tokens();
  p.pages = static_cast<int32_t>(pages.size());
  p.preemptions = preemptions;
  p.arrived = arrived_;
  p.started = started;
  p.first_token = first_token_;
  return p;
}

}  // namespace lariat
