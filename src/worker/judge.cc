#include "worker/judge.h"

#include "ops/sample.h"

namespace lariat {
namespace {

SampleParams sample_params(const PlanSampling& s) {
  SampleParams p;
  p.temperature = s.temperature;
  p.top_k = s.top_k;
  p.top_p = s.top_p;
  p.min_p = s.min_p;
  p.repetition_penalty = s.repetition_penalty;
  p.presence_penalty = s.presence_penalty;
  p.frequency_penalty = s.frequency_penalty;
  p.seed = s.seed;
  p.choice = s.choice;
  p.output_index = s.output_index;
  p.top_logprobs = s.top_logprobs;
  for (const PlanTokenCount& c : s.counts) p.counts.push_back({c.id, c.in_output, c.in_prompt});
  p.logit_bias = s.logit_bias;
  p.banned = s.banned;
  p.allowed = s.allowed;
  return p;
}

PositionLogprobs position_logprobs(const SampleResult& r) {
  PositionLogprobs out;
  out.logprob = r.logprob;
  out.top.reserve(r.top.size());
  for (const TokenLogprob& t : r.top) out.top.push_back({t.id, t.logprob});
  return out;
}

void fail(RowOutcome& outcome, const Error& error) {
  outcome.failed = true;
  outcome.error = error.code;
  outcome.message = error.message;
  outcome.token = -1;
}

}  // namespace

void judge_position(const PlanRow& row, int32_t index, std::span<float> logits, RowOutcome& outcome) {
  const bool last = index + 1 == row.n;
  if (index >= row.logits_first && index - row.logits_first < row.logits_count)
    outcome.logits.push_back({row.pos0 + index, {logits.begin(), logits.end()}});
  if (row.prompt_logprobs >= 0) {
    const int32_t next = last ? row.next_token : row.tokens[static_cast<size_t>(index) + 1];
    PositionLogprobs at;
    if (next >= 0) {
      const auto r = logprobs_of(logits, next, row.prompt_logprobs);
      if (!r.ok()) return fail(outcome, r.error());
      at = position_logprobs(*r);
    }
    outcome.prompt.push_back(std::move(at));
  }
  if (!last || !row.sample) return;
  const auto r = sample(logits, sample_params(row.sampling));
  if (!r.ok()) return fail(outcome, r.error());
  outcome.token = r->token;
  if (row.sampling.top_logprobs >= 0) outcome.token_logprobs = position_logprobs(*r);
}

}  // namespace lariat
