#include "worker/model_executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ops/isa.h"
#include "worker/judge.h"

namespace lariat {
namespace {

KvStoreConfig kv_config(const DecoderConfig& c, const DecoderShard& shard, const RankPlace& place,
                        const ModelExecutorOptions& options) {
  const auto dim = static_cast<int>(c.head_dim);
  return {.layers = static_cast<int>(c.layers),
          .layout = {.dtype = options.kv_type,
                     .kv_heads = static_cast<int>(shard.kv_heads.count),
                     .k_dim = dim,
                     .v_dim = dim,
                     .slots = place.constants.replicated ? options.page_tokens
                                                         : place.constants.placement.page_slots(
                                                               place.stripe(), options.page_tokens)},
          .pages_total = options.pages_total};
}

Mask mask_of(const DecoderConfig& c, int64_t layer) {
  const auto window = static_cast<int32_t>(c.masks[static_cast<size_t>(layer)].window);
  return window > 0 ? Mask{MaskKind::kWindow, window} : Mask{};
}

AttentionConfig attention_config(const Decoder& decoder, const RankPlace& place, Stream* stream,
                                 KvStore* kv) {
  const DecoderConfig& c = decoder.config();
  AttentionConfig config{.stream = stream,
                         .heads = static_cast<int>(decoder.shard().heads.count),
                         .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                         .groups = {kv},
                         .layers = {},
                         .placement = place.constants.placement,
                         .stripe = place.stripe(),
                         .comm = {}};
  if (place.groups) {
    config.comm = {.ring = place.groups->ring.get(),
                   .duplicates = place.groups->duplicates.get(),
                   .replicated = place.constants.replicated,
                   .ring_block = place.constants.ring_block,
                   .timeout = place.comm_timeout};
  }
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    config.layers.push_back(
        {.group = 0, .index = LayerId(static_cast<int32_t>(layer)), .mask = mask_of(c, layer)});
  }
  return config;
}

}  // namespace

Result<std::unique_ptr<ModelExecutor>> ModelExecutor::create(std::shared_ptr<const Decoder> decoder,
                                                             std::unique_ptr<Stream> stream, RankPlace place,
                                                             ModelExecutorOptions options) {
  // The compute placement points into the executor's own place.
  auto self = std::unique_ptr<ModelExecutor>(new ModelExecutor(std::move(place)));
  LARIAT_ASSIGN(self->compute_, ComputePlacement::create(self->place_.constants));
  LARIAT_ASSIGN(self->kv_,
                KvStore::create(kv_config(decoder->config(), decoder->shard(), self->place_, options)));
  if (options.poison) self->kv_->poison();
  LARIAT_ASSIGN(self->attention_,
                create_attention(attention_config(*decoder, self->place_, stream.get(), &*self->kv_)));
  LARIAT_ASSIGN(self->workspace_, DecoderWorkspace::create(
                                      decoder->config(), decoder->shard(),
                                      {.tokens_max = options.pass_tokens, .logit_rows_max = kLogitRowsMax}));
  self->decoder_ = std::move(decoder);
  self->stream_ = std::move(stream);
  self->options_ = options;
  return self;
}

Hello ModelExecutor::hello() const {
  Hello h;
  std::copy(std::begin(options_.weights_hash), std::end(options_.weights_hash), h.weights_hash);
  h.kv_type = dtype_name(options_.kv_type);
  h.store_pattern.assign(place_.constants.placement.pattern().begin(),
                         place_.constants.placement.pattern().end());
  h.compute_pattern = h.store_pattern;
  h.interleave = place_.constants.placement.interleave();
  h.device = fmt::format("cpu, {}, {} threads", isa_name(), stream_->threads());
  h.page_tokens = options_.page_tokens;
  h.pages_total = options_.pages_total;
  h.vocab = static_cast<int32_t>(decoder_->config().vocab);
  return h;
}

PlanLimits ModelExecutor::limits() const {
  PlanLimits limits = StepExecutor::limits();
  if (place_.layout().world() > 1)
    limits.schedule = std::make_shared<const ScheduleConstants>(place_.constants);
  return limits;
}

Result<ModelExecutor::Tokens> ModelExecutor::tokens_of(const StepPlan& plan) const {
  Tokens tokens;
  tokens.reserve(plan.rows.size());
  for (const PlanRow& row : plan.rows) {
    if (!row.use_prev) {
      tokens.push_back(row.tokens);
      continue;
    }
    const auto it = previous_.find(row.id);
    if (it == previous_.end()) {
      return make_error(Errc::kInternal,
                        fmt::format("row {} continues a token this rank never sampled", row.id.get()));
    }
    tokens.push_back({it->second});
  }
  return tokens;
}

Result<StepOutcome> ModelExecutor::run(const StepPlan& plan, const ProgressFn& progress) {
  auto outcome = run_step(plan, progress);
  // Peers that wait for a rank that gave up need not wait for their deadline. After an agreed error nobody
  // waits: the groups are as good as before.
  if (place_.groups && !outcome.ok() && apart_) place_.groups->abort(outcome.error());
  return outcome;
}

Result<StepOutcome> ModelExecutor::run_step(const StepPlan& plan, const ProgressFn& progress) {
  const auto start = std::chrono::steady_clock::now();
  StepOutcome outcome;
  outcome.epoch = plan.epoch;
  outcome.step = plan.step;
  for (const PlanRow& row : plan.rows) outcome.rows.emplace_back().id = row.id;
  for (const RowId id : plan.forget) previous_.erase(id);

  // A rank that cannot take its part says so in the first pass's agreement, where the others wait for it.
  const auto tokens = tokens_of(plan);
  const int64_t wait_before = wait_us();
  for (const Pass& pass : cut_passes(plan, *compute_, workspace_.sizes.tokens_max)) {
    LARIAT_RETURN_IF_ERROR(run_pass(plan, pass, tokens, outcome, progress));
  }
  LARIAT_RETURN_IF_ERROR(share_tokens(plan, outcome));
  outcome.comm_wait_us = wait_us() - wait_before;
  outcome.compute_us =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

Status ModelExecutor::run_pass(const StepPlan& plan, const Pass& pass, const Result<Tokens>& tokens,
                               StepOutcome& outcome, const ProgressFn& progress) {
  LocalPass local;
  Status ready = tokens.ok() ? prepare(plan, pass, *tokens, local) : Status(tokens.error());
  if (ready.ok() && !progress()) ready = make_error(Errc::kCancelled, "the step was cancelled");
  apart_ = false;
  LARIAT_RETURN_IF_ERROR(agreement_.ready(ready, plan.schedule_hash));
  apart_ = true;
  // A rank alone may stop between layers; ranks that wait for each other stop between passes, together.
  const bool alone = place_.layout().world() == 1;
  const KeepGoing keep_going = [&] { return progress() || !alone; };
  LARIAT_RETURN_IF_ERROR(
      decoder_->forward(*stream_, workspace_, local.ids, local.positions, *attention_, keep_going));
  return judge_all(plan, wanted_of(plan, pass), outcome);
}

// This rank's tokens of the pass, and the rows as attention takes them.
Status ModelExecutor::prepare(const StepPlan& plan, const Pass& pass, const Tokens& tokens,
                              LocalPass& local) {
  std::vector<StepRow> rows;
  for (const PassSegment& s : pass) {
    const PlanRow& row = plan.rows[s.row];
    const size_t first = local.positions.size();
    compute_->positions(row, s, place_.c(), local.positions);
    for (size_t k = first; k < local.positions.size(); ++k) {
      local.ids.push_back(tokens[s.row][static_cast<size_t>(local.positions[k] - row.pos0)]);
    }
    const auto n = static_cast<int64_t>(local.positions.size() - first);
    if (s.strategy == RowStrategy::kLocal && n == 0) continue;  // another rank is its home
    rows.push_back({.first = static_cast<int64_t>(first),
                    .n = n,
                    .length = int64_t{row.pos0} + s.first + s.n,
                    .pages = row.pages,
                    .strategy = s.strategy,
                    .resident = int64_t{row.pos0} + s.first});
  }
  for (StepRow& row : rows) row.positions = local.positions.data() + row.first;
  return attention_->begin_step(rows);
}

std::vector<ModelExecutor::Wanted> ModelExecutor::wanted_of(const StepPlan& plan, const Pass& pass) const {
  std::vector<Wanted> wanted;
  int64_t base = 0;
  for (const PassSegment& s : pass) {
    const PlanRow& row = plan.rows[s.row];
    const int32_t from = row.wanted == LogitsWanted::kAll ? s.first : std::max(s.first, row.n - 1);
    for (int32_t i = from; i < s.first + s.n && row.wanted != LogitsWanted::kNone; ++i) {
      const TokenPos pos(row.pos0 + i);
      if (compute_->owner(row, s, pos) == place_.c())
        wanted.push_back({s.row, i, base + compute_->index(row, s, pos)});
    }
    base += compute_->count(row, s, place_.c());
  }
  return wanted;
}

// A block of positions at a time; their logits are a collective of the tp group, the judging is its first
// rank's.
Status ModelExecutor::judge_all(const StepPlan& plan, std::span<const Wanted> wanted, StepOutcome& outcome) {
  for (size_t begin = 0; begin < wanted.size(); begin += kLogitRowsMax) {
    const auto block = wanted.subspan(begin, std::min<size_t>(kLogitRowsMax, wanted.size() - begin));
    std::vector<int64_t> rows;
    rows.reserve(block.size());
    for (const Wanted& w : block) rows.push_back(w.in_pass);
    LARIAT_RETURN_IF_ERROR(decoder_->logits(*stream_, workspace_, rows));
    if (place_.t() == 0) judge_block(plan, block, outcome);
  }
  return Ok{};
}

void ModelExecutor::judge_block(const StepPlan& plan, std::span<const Wanted> block, StepOutcome& outcome) {
  const auto vocab = static_cast<size_t>(decoder_->config().vocab);
  const auto logits = [&](size_t i) { return std::span<float>(workspace_.logits + i * vocab, vocab); };
  std::vector<RowOutcome> judged(block.size());
  stream_->pool().parallel_for(static_cast<int64_t>(block.size()), [&](int64_t at, int) {
    const auto i = static_cast<size_t>(at);
    judge_position(plan.rows[block[i].row], block[i].index, logits(i), judged[i]);
  });
  for (size_t i = 0; i < block.size(); ++i) {
    RowOutcome& row = outcome.rows[block[i].row];
    RowOutcome& j = judged[i];
    if (row.failed) continue;
    if (j.failed) {
      j.id = row.id;
      row = std::move(j);
      continue;
    }
    if (!j.prompt.empty()) {
      row.prompt.resize(static_cast<size_t>(plan.rows[block[i].row].n),
                        {.logprob = kLogprobElsewhere, .top = {}});
      row.prompt[static_cast<size_t>(block[i].index)] = std::move(j.prompt.front());
    }
    if (!j.logits.empty()) row.logits.push_back(std::move(j.logits.front()));
    if (j.token >= 0) {
      row.token = j.token;
      row.token_logprobs = std::move(j.token_logprobs);
    }
  }
}

// Every rank learns every token, for rows that go on with `use_prev`; the outcome keeps what this rank drew.
Status ModelExecutor::share_tokens(const StepPlan& plan, StepOutcome& outcome) {
  std::vector<int32_t> tokens;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    if (plan.rows[r].sample) tokens.push_back(outcome.rows[r].failed ? -1 : outcome.rows[r].token);
  }
  LARIAT_RETURN_IF_ERROR(agreement_.share_tokens(tokens));
  size_t next = 0;
  for (const PlanRow& row : plan.rows) {
    if (!row.sample) continue;
    const int32_t token = tokens[next++];
    if (token >= 0) previous_[row.id] = token;
  }
  return Ok{};
}

}  // namespace lariat
