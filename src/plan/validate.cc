#include "plan/validate.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "plan/schedule_hash.h"

namespace lariat {
namespace {

template <typename... Args>
Error fault(fmt::format_string<Args...> f, Args&&... args) {
  return make_error(Errc::kCorruptData, fmt::format(f, std::forward<Args>(args)...));
}

bool in_range(float value, float low, float high) {
  return value >= low && value <= high;  // false for NaN
}

Status check_ids(const std::vector<int32_t>& ids, int32_t vocab, const char* field) {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab) return fault("{}: id {} is not in the vocabulary of {}", field, id, vocab);
  return Ok{};
}

Status check_counts(const std::vector<PlanTokenCount>& counts, int32_t vocab) {
  std::unordered_set<int32_t> seen;
  seen.reserve(counts.size());
  for (const PlanTokenCount& c : counts) {
    if (c.id < 0 || c.id >= vocab) return fault("counts: id {} is not in the vocabulary of {}", c.id, vocab);
    if (!seen.insert(c.id).second) return fault("counts: id {} twice", c.id);
    if (c.in_output < 0) return fault("counts: id {} counted {} times", c.id, c.in_output);
  }
  return Ok{};
}

Status check_bias(const std::vector<std::pair<int32_t, float>>& bias, int32_t vocab) {
  std::unordered_set<int32_t> seen;
  for (const auto& [id, value] : bias) {
    if (id < 0 || id >= vocab) return fault("logit_bias: id {} is not in the vocabulary of {}", id, vocab);
    if (!seen.insert(id).second) return fault("logit_bias: id {} twice", id);
    if (!std::isfinite(value)) return fault("logit_bias: that of id {} is not finite", id);
  }
  return Ok{};
}

// Logits that are to come back: of new tokens that are there and whose logits are wanted.
Status check_logits(const PlanRow& row) {
  if (row.logits_count == 0 && row.logits_first == 0) return Ok{};
  if (row.logits_first < 0 || row.logits_count < 1 || row.logits_first > row.n - row.logits_count)
    return fault("logits of {} tokens from {} on, of {} new ones", row.logits_count, row.logits_first, row.n);
  if (row.wanted == LogitsWanted::kNone ||
      (row.wanted == LogitsWanted::kLast && row.logits_first != row.n - 1))
    return fault("logits of token {} of {} that are not wanted", row.logits_first, row.n);
  return Ok{};
}

}  // namespace

Status check_sampling(const PlanSampling& s, int32_t vocab, int32_t top_logprobs_max) {
  if (!in_range(s.temperature, 0, 1e6f)) return fault("temperature {}", s.temperature);
  if (s.top_k < 0) return fault("top_k {}", s.top_k);
  if (!in_range(s.top_p, 0, 1)) return fault("top_p {}", s.top_p);
  if (!in_range(s.min_p, 0, 1)) return fault("min_p {}", s.min_p);
  if (!in_range(s.repetition_penalty, 1e-6f, 1e6f))
    return fault("repetition_penalty {}", s.repetition_penalty);
  if (!in_range(s.presence_penalty, -1e6f, 1e6f)) return fault("presence_penalty {}", s.presence_penalty);
  if (!in_range(s.frequency_penalty, -1e6f, 1e6f)) return fault("frequency_penalty {}", s.frequency_penalty);
  if (s.top_logprobs < -1 || s.top_logprobs > top_logprobs_max)
    return fault("top_logprobs {} of at most {}", s.top_logprobs, top_logprobs_max);
  LARIAT_RETURN_IF_ERROR(check_counts(s.counts, vocab));
  LARIAT_RETURN_IF_ERROR(check_bias(s.logit_bias, vocab));
  LARIAT_RETURN_IF_ERROR(check_ids(s.banned, vocab, "banned"));
  const size_t words = (static_cast<size_t>(vocab) + 63) / 64;
  if (!s.allowed.empty() && s.allowed.size() != words)
    return fault("allowed: {} words for a vocabulary of {}, {} expected", s.allowed.size(), vocab, words);
  return Ok{};
}

PlanValidator::PlanValidator(const PlanLimits& limits) : limits_(limits) {
  LARIAT_CHECK(
      limits.pages_total >= 1 && limits.page_tokens >= 1 && limits.vocab >= 1 && limits.cache_groups >= 1,
      "{} pages of {}, vocabulary {}, {} cache groups", limits.pages_total, limits.page_tokens, limits.vocab,
      limits.cache_groups);
  const size_t slots = static_cast<size_t>(limits.pages_total) * static_cast<size_t>(limits.cache_groups);
  named_by_.assign(slots, 0);
  written_.assign(slots, 0);
}

Status PlanValidator::check(const StepPlan& plan, Epoch epoch) {
  const auto where = [&] { return fmt::format("step {}", plan.step.get()); };
  if (plan.epoch != epoch)
    return fault("{}: epoch {}, this group is {}", where(), plan.epoch.get(), epoch.get());
  if (plan.step <= last_step_) return fault("{}: step {} was done already", where(), last_step_.get());
  if (plan.rows.empty()) return fault("{}: no rows", where());
  if (limits_.rows_max > 0 && plan.rows.size() > static_cast<size_t>(limits_.rows_max))
    return fault("{}: {} rows of at most {}", where(), plan.rows.size(), limits_.rows_max);
  std::unordered_set<RowId> ids;
  int64_t tokens = 0;
  int64_t logits_bytes = 0;
  for (const PlanRow& row : plan.rows) {
    if (!ids.insert(row.id).second) return fault("{}: row {} twice", where(), row.id.get());
    if (auto status = check_row(row); !status.ok())
      return status.error().in(fmt::format("{}, row {}", where(), row.id.get()));
    tokens += row.n;
    logits_bytes += int64_t{row.logits_count} * limits_.vocab * static_cast<int64_t>(sizeof(float));
  }
  if (limits_.tokens_max > 0 && tokens > limits_.tokens_max)
    return fault("{}: {} new tokens of at most {}", where(), tokens, limits_.tokens_max);
  if (logits_bytes > kLogitsBytesMax)
    return fault("{}: {} bytes of logits asked back, at most {}", where(), logits_bytes, kLogitsBytesMax);
  if (auto status = check_pages(plan); !status.ok()) return status.error().in(where());
  std::vector<Collective> schedule;
  if (limits_.schedule) schedule = derive_schedule(plan, *limits_.schedule);
  const auto hash = schedule_hash(schedule);
  if (hash[0] != plan.schedule_hash[0] || hash[1] != plan.schedule_hash[1])
    return fault("{}: schedule hash {:016x}{:016x}, this rank derives {:016x}{:016x}", where(),
                 plan.schedule_hash[1], plan.schedule_hash[0], hash[1], hash[0]);
  last_step_ = plan.step;
  return Ok{};
}

Status PlanValidator::check_row(const PlanRow& row) const {
  if (row.n < 1) return fault("{} new tokens", row.n);
  if (row.pos0 < 0) return fault("position {}", row.pos0);
  const int64_t end = int64_t{row.pos0} + row.n;
  if (end > limits_.context) return fault("tokens to position {} in a context of {}", end, limits_.context);
  if (row.use_prev) {
    if (row.n != 1 || !row.tokens.empty())
      return fault("{} tokens and {} ids beside the previous token", row.n, row.tokens.size());
  } else if (row.tokens.size() != static_cast<size_t>(row.n)) {
    return fault("{} ids for {} tokens", row.tokens.size(), row.n);
  }
  LARIAT_RETURN_IF_ERROR(check_ids(row.tokens, limits_.vocab, "tokens"));
  if (row.pages.size() != static_cast<size_t>(limits_.cache_groups))
    return fault("{} page tables for {} cache groups", row.pages.size(), limits_.cache_groups);
  for (const auto& table : row.pages)
    if (static_cast<int64_t>(table.size()) * limits_.page_tokens < end)
      return fault("{} pages of {} hold fewer than {} tokens", table.size(), limits_.page_tokens, end);
  if (row.strategy > Strategy::kGather) return fault("strategy {}", static_cast<int>(row.strategy));
  if (row.wanted > LogitsWanted::kAll) return fault("wanted logits {}", static_cast<int>(row.wanted));
  if (row.sample && row.wanted == LogitsWanted::kNone) return fault("a sample without logits");
  if (row.sample)
    LARIAT_RETURN_IF_ERROR(check_sampling(row.sampling, limits_.vocab, limits_.top_logprobs_max));
  if (row.prompt_logprobs < -1 || row.prompt_logprobs > limits_.top_logprobs_max)
    return fault("prompt_logprobs {} of at most {}", row.prompt_logprobs, limits_.top_logprobs_max);
  if (row.prompt_logprobs >= 0 && row.wanted != LogitsWanted::kAll)
    return fault("prompt_logprobs without all logits");
  LARIAT_RETURN_IF_ERROR(check_logits(row));
  if (row.next_token < -1 || row.next_token >= limits_.vocab)
    return fault("next_token: id {} is not in the vocabulary of {}", row.next_token, limits_.vocab);
  return Ok{};
}

Status PlanValidator::check_pages(const StepPlan& plan) {
  plan_first_table_ = tables_ + 1;
  for (const PlanRow& row : plan.rows)
    for (size_t group = 0; group < row.pages.size(); ++group)
      if (auto status = check_table(row, group); !status.ok())
        return status.error().in(fmt::format("row {}", row.id.get()));
  return Ok{};
}

Status PlanValidator::check_table(const PlanRow& row, size_t group) {
  const auto& table = row.pages[group];
  const uint64_t mine = ++tables_;
  const int64_t write_from = row.pos0 / limits_.page_tokens;
  const int64_t write_to = (int64_t{row.pos0} + row.n - 1) / limits_.page_tokens;
  for (int64_t i = 0; i < static_cast<int64_t>(table.size()); ++i) {
    const int32_t page = table[static_cast<size_t>(i)].get();
    if (page < 0 || page >= limits_.pages_total)
      return fault("page {} of a pool of {}", page, limits_.pages_total);
    const size_t slot = group * static_cast<size_t>(limits_.pages_total) + static_cast<size_t>(page);
    const bool write = i >= write_from && i <= write_to;
    if (named_by_[slot] == mine) return fault("page {} twice", page);
    const bool shared = named_by_[slot] >= plan_first_table_;
    if (shared && (write || written_[slot] != 0))
      return fault("page {} is written and belongs to another row too", page);
    named_by_[slot] = mine;
    written_[slot] = write ? 1 : 0;
  }
  return Ok{};
}

}  // namespace lariat
