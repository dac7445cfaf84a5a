#include "plan/pass_plan.h"

#include <algorithm>

#include "base/check.h"

namespace lariat {

Result<ComputePlacement> ComputePlacement::create(const ScheduleConstants& c) {
  const int32_t duplicates = layout_shape(c.layout, c.heads, c.kv_heads).duplicates;
  std::vector<int32_t> pattern(c.placement.pattern().begin(), c.placement.pattern().end());
  for (int32_t& stripe : pattern) stripe /= duplicates;
  LARIAT_ASSIGN(Placement over_cp, Placement::create(std::move(pattern), c.placement.interleave()));
  return ComputePlacement(c, std::move(over_cp));
}

int64_t ComputePlacement::count(const PlanRow& row, const PassSegment& s, int32_t c) const {
  if (!is_shared(s)) return computes_whole(row, s, c) ? s.n : 0;
  const int64_t begin = int64_t{row.pos0} + s.first;
  return placement_.local_count(StripeIndex(c), begin + s.n) - placement_.local_count(StripeIndex(c), begin);
}

void ComputePlacement::positions(const PlanRow& row, const PassSegment& s, int32_t c,
                                 std::vector<int32_t>& out) const {
  const int32_t begin = row.pos0 + s.first;
  if (!is_shared(s)) {
    for (int32_t i = 0; i < s.n && computes_whole(row, s, c); ++i) out.push_back(begin + i);
    return;
  }
  const int64_t first = placement_.local_count(StripeIndex(c), begin);
  const int64_t last = placement_.local_count(StripeIndex(c), int64_t{begin} + s.n);
  for (int64_t slot = first; slot < last; ++slot) {
    out.push_back(placement_.position(StripeIndex(c), LocalSlot(static_cast<int32_t>(slot))).get());
  }
}

int32_t ComputePlacement::owner(const PlanRow& row, const PassSegment& s, TokenPos pos) const {
  return s.strategy == RowStrategy::kLocal ? home_member(row, *constants_) : placement_.owner(pos).get();
}

int64_t ComputePlacement::index(const PlanRow& row, const PassSegment& s, TokenPos pos) const {
  const int64_t begin = int64_t{row.pos0} + s.first;
  if (!is_shared(s)) return pos.get() - begin;
  return placement_.local_slot(pos).get() - placement_.local_count(placement_.owner(pos), begin);
}

int64_t ComputePlacement::count_max(int64_t n) const {
  int64_t most = 0;
  const int64_t periods = n / placement_.period();
  const int64_t rest = n % placement_.period();
  for (int32_t c = 0; c < cp(); ++c) {
    const int64_t in_period = placement_.slots_per_period(StripeIndex(c));
    most = std::max(most, periods * in_period + std::min(rest, in_period));
  }
  return most;
}

int64_t ComputePlacement::tokens_within(int64_t tokens) const {
  int64_t in_period = 1;
  for (int32_t c = 0; c < cp(); ++c) {
    in_period = std::max<int64_t>(in_period, placement_.slots_per_period(StripeIndex(c)));
  }
  const int64_t whole = tokens / in_period * placement_.period();
  return std::max<int64_t>(whole > 0 ? whole : tokens, 1);
}

std::vector<Pass> cut_passes(const StepPlan& plan, const ComputePlacement& compute, int64_t tokens_max) {
  LARIAT_CHECK(tokens_max >= 1, "tokens_max = {}", tokens_max);
  std::vector<Pass> passes;
  Pass pass;
  // Tokens each cp rank computes in `pass`; the fullest rank says when it is full.
  std::vector<int64_t> used(static_cast<size_t>(compute.cp()), 0);
  const auto flush = [&] {
    if (!pass.empty()) passes.push_back(std::move(pass));
    pass.clear();
    std::fill(used.begin(), used.end(), 0);
  };
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    for (int32_t first = 0; first < row.n;) {
      const int64_t room = tokens_max - *std::max_element(used.begin(), used.end());
      // A row's later tokens attend its earlier ones, which are another rank's to send until their pass is
      // over.
      const bool behind_itself = !pass.empty() && pass.back().row == r;
      if (room < 1 || behind_itself) {
        flush();
        continue;
      }
      const RowStrategy strategy = compute.strategy(row);
      const bool shared = strategy == RowStrategy::kPassKv || strategy == RowStrategy::kPassQ;
      const int64_t n = std::min<int64_t>(row.n - first, shared ? compute.tokens_within(room) : room);
      const PassSegment segment{r, first, static_cast<int32_t>(n), strategy};
      pass.push_back(segment);
      for (int32_t c = 0; c < compute.cp(); ++c)
        used[static_cast<size_t>(c)] += compute.count(row, segment, c);
      first += segment.n;
    }
  }
  flush();
  return passes;
}

}  // namespace lariat
