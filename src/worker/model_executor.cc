#include "worker/model_executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ops/isa.h"
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

KvStoreConfig kv_config(const DecoderConfig& c, const DecoderShard& shard, const Placement& placement,
                        const ModelExecutorOptions& options) {
  const auto dim = static_cast<int>(c.head_dim);
  return {.layers = static_cast<int>(c.layers),
          .layout = {.dtype = options.kv_type,
                     .kv_heads = static_cast<int>(shard.kv_heads.count),
                     .k_dim = dim,
                     .v_dim = dim,
                     .slots = placement.page_slots(StripeIndex(0), options.page_tokens)},
          .pages_total = options.pages_total};
}

Mask mask_of(const DecoderConfig& c, int64_t layer) {
  const auto window = static_cast<int32_t>(c.masks[static_cast<size_t>(layer)].window);
  return window > 0 ? Mask{MaskKind::kWindow, window} : Mask{};
}

void fail(RowOutcome& outcome, const Error& error) {
  outcome.failed = true;
  outcome.error = error.code;
  outcome.message = error.message;
  outcome.token = -1;
}

}  // namespace

// The part of one row that one pass computes.
struct ModelExecutor::Segment {
  size_t row = 0;     // in the plan
  int32_t first = 0;  // token of the row
  int32_t n = 0;
  std::vector<int32_t> const* tokens = nullptr;  // the whole row's
};

Result<std::unique_ptr<ModelExecutor>> ModelExecutor::create(std::shared_ptr<const Decoder> decoder,
                                                             std::unique_ptr<Stream> stream,
                                                             ModelExecutorOptions options) {
  auto self = std::unique_ptr<ModelExecutor>(new ModelExecutor());
  const DecoderConfig& c = decoder->config();
  LARIAT_ASSIGN(const Placement placement, Placement::equal(1, options.interleave));
  LARIAT_ASSIGN(self->kv_, KvStore::create(kv_config(c, decoder->shard(), placement, options)));
  if (options.poison) self->kv_->poison();
  AttentionConfig attention{.stream = stream.get(),
                            .heads = static_cast<int>(decoder->shard().heads.count),
                            .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                            .groups = {&*self->kv_},
                            .layers = {},
                            .placement = placement,
                            .stripe = StripeIndex(0)};
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    attention.layers.push_back(
        {.group = 0, .index = LayerId(static_cast<int32_t>(layer)), .mask = mask_of(c, layer)});
  }
  LARIAT_ASSIGN(self->attention_, create_attention(attention));
  LARIAT_ASSIGN(self->workspace_, DecoderWorkspace::create(
                                      c, decoder->shard(),
                                      {.tokens_max = options.pass_tokens, .logit_rows_max = kLogitRowsMax}));
  self->decoder_ = std::move(decoder);
  self->stream_ = std::move(stream);
  self->options_ = options;
  return self;
}

int64_t ModelExecutor::workspace_bytes() const {
  return DecoderWorkspace::bytes(decoder_->config(), decoder_->shard(), workspace_.sizes) +
         static_cast<int64_t>(stream_->scratch_bytes());
}

Hello ModelExecutor::hello() const {
  Hello h;
  h.kv_type = dtype_name(options_.kv_type);
  h.interleave = options_.interleave;
  h.device = fmt::format("cpu, {}, {} threads", isa_name(), stream_->threads());
  h.page_tokens = options_.page_tokens;
  h.pages_total = options_.pages_total;
  h.vocab = static_cast<int32_t>(decoder_->config().vocab);
  return h;
}

Result<std::vector<int32_t>> ModelExecutor::tokens_of(const PlanRow& row) const {
  if (!row.use_prev) return row.tokens;
  const auto it = previous_.find(row.id);
  if (it == previous_.end()) {
    return make_error(Errc::kInternal,
                      fmt::format("row {} continues a token this rank never sampled", row.id.get()));
  }
  return std::vector<int32_t>{it->second};
}

Result<StepOutcome> ModelExecutor::run(const StepPlan& plan, const ProgressFn& progress) {
  StepOutcome outcome;
  outcome.epoch = plan.epoch;
  outcome.step = plan.step;
  for (const RowId id : plan.forget) previous_.erase(id);

  std::vector<std::vector<int32_t>> tokens;
  tokens.reserve(plan.rows.size());
  for (const PlanRow& row : plan.rows) {
    outcome.rows.emplace_back().id = row.id;
    LARIAT_ASSIGN(auto ids, tokens_of(row));
    tokens.push_back(std::move(ids));
  }

  // Rows are cut where a pass is full. A row's bits do not depend on the cut (docs/design.md §9).
  std::vector<Segment> pass;
  int64_t room = workspace_.sizes.tokens_max;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const auto total = static_cast<int32_t>(tokens[r].size());
    for (int32_t first = 0; first < total;) {
      const auto n = static_cast<int32_t>(std::min<int64_t>(total - first, room));
      pass.push_back({.row = r, .first = first, .n = n, .tokens = &tokens[r]});
      first += n;
      room -= n;
      if (room > 0) continue;
      LARIAT_RETURN_IF_ERROR(run_pass(plan, pass, outcome, progress));
      pass.clear();
      room = workspace_.sizes.tokens_max;
    }
  }
  if (!pass.empty()) LARIAT_RETURN_IF_ERROR(run_pass(plan, pass, outcome, progress));
  return outcome;
}

Status ModelExecutor::run_pass(const StepPlan& plan, std::span<const Segment> segments, StepOutcome& outcome,
                               const ProgressFn& progress) {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;
  for (const Segment& s : segments) {
    const PlanRow& row = plan.rows[s.row];
    ids.insert(ids.end(), s.tokens->begin() + s.first, s.tokens->begin() + s.first + s.n);
    for (int32_t i = 0; i < s.n; ++i) positions.push_back(row.pos0 + s.first + i);
  }
  std::vector<StepRow> rows;
  int64_t first = 0;
  for (const Segment& s : segments) {
    const PlanRow& row = plan.rows[s.row];
    rows.push_back({.first = first,
                    .n = s.n,
                    .positions = positions.data() + first,
                    .length = int64_t{row.pos0} + s.first + s.n,
                    .pages = row.pages});
    first += s.n;
  }
  LARIAT_RETURN_IF_ERROR(attention_->begin_step(rows));
  LARIAT_RETURN_IF_ERROR(decoder_->forward(*stream_, workspace_, ids, positions, *attention_, progress));
  return finish_logits(plan, segments, outcome);
}

// Logits of the pass's wanted positions, a block of rows at a time, judged in parallel.
Status ModelExecutor::finish_logits(const StepPlan& plan, std::span<const Segment> segments,
                                    StepOutcome& outcome) {
  struct Wanted {
    size_t row;
    int32_t index;  // token of the row
    int64_t in_pass;
  };
  std::vector<Wanted> wanted;
  int64_t base = 0;
  for (const Segment& s : segments) {
    const PlanRow& row = plan.rows[s.row];
    for (int32_t i = 0; i < s.n; ++i) {
      const bool last = s.first + i + 1 == row.n;
      if (row.wanted == LogitsWanted::kAll || (last && row.wanted == LogitsWanted::kLast)) {
        wanted.push_back({s.row, s.first + i, base + i});
      }
    }
    base += s.n;
  }
  for (size_t begin = 0; begin < wanted.size(); begin += kLogitRowsMax) {
    const size_t n = std::min<size_t>(kLogitRowsMax, wanted.size() - begin);
    std::vector<int64_t> rows;
    for (size_t i = 0; i < n; ++i) rows.push_back(wanted[begin + i].in_pass);
    LARIAT_RETURN_IF_ERROR(decoder_->logits(*stream_, workspace_, rows));
    const auto vocab = static_cast<size_t>(decoder_->config().vocab);
    // Positions of one row must append in order, so their slots exist before threads fill them.
    for (size_t i = 0; i < n; ++i) {
      const Wanted& w = wanted[begin + i];
      if (plan.rows[w.row].prompt_logprobs >= 0)
        outcome.rows[w.row].prompt.resize(static_cast<size_t>(w.index) + 1);
      const std::span<float> logits(workspace_.logits + i * vocab, vocab);
      if (tap_) tap_(plan.rows[w.row].id, TokenPos(plan.rows[w.row].pos0 + w.index), logits);
    }
    std::vector<RowOutcome> judged(n);
    stream_->pool().parallel_for(static_cast<int64_t>(n), [&](int64_t i, int) {
      const Wanted& w = wanted[begin + static_cast<size_t>(i)];
      judge_position(plan.rows[w.row], w.index, {workspace_.logits + static_cast<size_t>(i) * vocab, vocab},
                     judged[static_cast<size_t>(i)]);
    });
    for (size_t i = 0; i < n; ++i) {
      const Wanted& w = wanted[begin + i];
      RowOutcome& row = outcome.rows[w.row];
      RowOutcome& j = judged[i];
      if (row.failed) continue;
      if (j.failed) {
        fail(row, {j.error, j.message, {}});
        continue;
      }
      if (!j.prompt.empty()) row.prompt[static_cast<size_t>(w.index)] = std::move(j.prompt.front());
      if (j.token < 0) continue;
      row.token = j.token;
      row.token_logprobs = std::move(j.token_logprobs);
      previous_[plan.rows[w.row].id] = j.token;
    }
  }
  return Ok{};
}

// Prompt logprobs and the draw of one position; touches nothing but its own outcome.
void ModelExecutor::judge_position(const PlanRow& row, int32_t index, std::span<float> logits,
                                   RowOutcome& outcome) const {
  const bool last = index + 1 == row.n;
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
