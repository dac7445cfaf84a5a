#include "head/outcome_merge.h"

#include <algorithm>

namespace lariat {
namespace {

// Positions of a prompt are judged by the ranks that computed them, each once.
Status merge_prompt(RowOutcome& into, const RowOutcome& row, size_t rank) {
  if (row.prompt.empty()) return Ok{};
  if (into.prompt.empty()) {
    into.prompt = row.prompt;
    return Ok{};
  }
  if (into.prompt.size() != row.prompt.size())
    return make_error(Errc::kCorruptData,
                      fmt::format("rank {} answered {} positions of row {}, a rank before it {}", rank,
                                  row.prompt.size(), row.id.get(), into.prompt.size()));
  for (size_t i = 0; i < row.prompt.size(); ++i)
    if (into.prompt[i].logprob == kLogprobElsewhere) into.prompt[i] = row.prompt[i];
  return Ok{};
}

// Each position is judged by one rank; what comes of several is put in order.
Status merge_logits(RowOutcome& into, const RowOutcome& row, size_t rank) {
  if (row.logits.empty()) return Ok{};
  const auto middle = static_cast<std::ptrdiff_t>(into.logits.size());
  into.logits.insert(into.logits.end(), row.logits.begin(), row.logits.end());
  const auto by_position = [](const PositionLogits& a, const PositionLogits& b) { return a.pos < b.pos; };
  std::inplace_merge(into.logits.begin(), into.logits.begin() + middle, into.logits.end(), by_position);
  const auto twice =
      std::adjacent_find(into.logits.begin(), into.logits.end(),
                         [](const PositionLogits& a, const PositionLogits& b) { return a.pos >= b.pos; });
  if (twice == into.logits.end()) return Ok{};
  return make_error(Errc::kCorruptData,
                    fmt::format("rank {} answered the logits of position {} of row {}, as a rank before it "
                                "did, or out of order",
                                rank, twice->pos, row.id.get()));
}

Status merge_row(RowOutcome& into, const RowOutcome& row, size_t rank) {
  if (row.id != into.id)
    return make_error(Errc::kCorruptData, fmt::format("rank {} answered row {} where rank 0 answered {}",
                                                      rank, row.id.get(), into.id.get()));
  if (row.failed && !into.failed) {
    into.failed = true;
    into.error = row.error;
    into.message = row.message;
  }
  if (row.token >= 0) {
    if (into.token >= 0 && into.token != row.token)
      return make_error(Errc::kCorruptData,
                        fmt::format("rank {} drew token {} for row {}, a rank before it {}", rank, row.token,
                                    row.id.get(), into.token));
    if (into.token < 0) into.token_logprobs = row.token_logprobs;
    into.token = row.token;
  }
  LARIAT_RETURN_IF_ERROR(merge_logits(into, row, rank));
  return merge_prompt(into, row, rank);
}

}  // namespace

Result<StepOutcome> merge_outcomes(std::span<const StepOutcome> outcomes) {
  LARIAT_CHECK(!outcomes.empty(), "no rank, no outcome");
  StepOutcome merged = outcomes[0];
  for (size_t rank = 1; rank < outcomes.size(); ++rank) {
    const StepOutcome& o = outcomes[rank];
    if (o.epoch != merged.epoch || o.step != merged.step || o.rows.size() != merged.rows.size())
      return make_error(
          Errc::kCorruptData,
          fmt::format("rank {} answered step {} of epoch {} with {} rows, rank 0 step {} of epoch {} "
                      "with {}",
                      rank, o.step.get(), o.epoch.get(), o.rows.size(), merged.step.get(), merged.epoch.get(),
                      merged.rows.size()));
    for (size_t i = 0; i < o.rows.size(); ++i)
      LARIAT_RETURN_IF_ERROR(merge_row(merged.rows[i], o.rows[i], rank));
    merged.compute_us = std::max(merged.compute_us, o.compute_us);
    merged.comm_wait_us = std::max(merged.comm_wait_us, o.comm_wait_us);
  }
  for (const RowOutcome& row : merged.rows)
    for (const PositionLogprobs& p : row.prompt)
      if (!row.failed && p.logprob == kLogprobElsewhere)
        return make_error(Errc::kCorruptData,
                          fmt::format("no rank answered every prompt position of row {}", row.id.get()));
  return merged;
}

}  // namespace lariat
