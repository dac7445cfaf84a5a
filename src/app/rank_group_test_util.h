// Ranks as threads, fed through step plans as the scheduler would, for the tests of what many ranks answer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "app/local_ranks.h"
#include "pages/page_allocator.h"

namespace lariat {

inline LayoutOptions cp(int32_t ranks, int32_t interleave = 1) {
  LayoutOptions layout;
  layout.cp = ranks;
  layout.interleave = interleave;
  return layout;
}

inline std::vector<int32_t> random_ids(uint32_t seed, size_t n, uint32_t vocab) {
  std::vector<int32_t> ids(n);
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    ids[i] = static_cast<int32_t>((seed >> 8) % vocab);
  }
  return ids;
}

// Infinity if the lengths differ or a number is NaN.
inline double max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!(difference <= most)) most = std::isnan(difference) ? INFINITY : difference;
  }
  return most;
}

// A group with one page allocator; rows are fed through step plans as the scheduler would.
class RankGroupUnderTest {
 public:
  RankGroupUnderTest(const OpenModel& model, LayoutOptions layout, int32_t context) {
    layout.context = context;
    layout.threads = 1;
    layout.comm_timeout = std::chrono::seconds(60);
    auto plan = resolve_plan(model, layout);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    plan_ = *plan;
    auto pages = PageAllocator::create(plan_.pages_total);
    EXPECT_TRUE(pages.ok());
    pages_.emplace(std::move(pages).value());
    auto ranks = LocalRanks::load(model, layout, plan_, {.poison = true, .progress = {}});
    EXPECT_TRUE(ranks.ok()) << ranks.error().message;
    ranks_ = std::move(ranks).value();
  }

  struct Row {
    RowId id;
    std::vector<int32_t> ids;
    std::vector<PageId> pages;
    int32_t done = 0;
    bool decoding = false;  // the prompt is in
  };

  PlanRow next(Row& row, int32_t chunk) {
    PlanRow r;
    r.id = row.id;
    r.pos0 = row.done;
    r.n = std::min<int32_t>(chunk, static_cast<int32_t>(row.ids.size()) - row.done);
    r.tokens.assign(row.ids.begin() + row.done, row.ids.begin() + row.done + r.n);
    row.done += r.n;
    const int64_t need =
        (row.done + plan_.page_tokens - 1) / plan_.page_tokens - static_cast<int64_t>(row.pages.size());
    EXPECT_TRUE(need <= 0 || pages_->take(need, row.pages));
    r.pages = {row.pages};
    if (row.done == static_cast<int32_t>(row.ids.size())) {
      r.wanted = LogitsWanted::kLast;
      r.sample = true;
      if (row.decoding) r.strategy = Strategy::kGather;
      r.sampling.temperature = 0;
    }
    return r;
  }

  StepOutcome step(std::vector<PlanRow> rows) {
    StepPlan plan;
    plan.step = StepId(++steps_);
    plan.rows = std::move(rows);
    auto outcome = ranks_->run(plan, [] { return true; });
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return outcome.ok() ? std::move(outcome).value() : StepOutcome{};
  }

  // Greedy tokens after `prompt`: at most n, up to and with `end`.
  std::vector<int32_t> generate(const std::vector<int32_t>& prompt, int32_t chunk, int32_t n,
                                int32_t end = -1) {
    Row row{RowId(++rows_), prompt, {}, 0, false};
    std::vector<int32_t> out;
    while (static_cast<int32_t>(out.size()) < n) {
      PlanRow planned = next(row, chunk);
      if (planned.sample && !row.decoding) {
        planned.logits_first = planned.n - 1;
        planned.logits_count = 1;
      }
      const StepOutcome outcome = step({std::move(planned)});
      if (outcome.rows.empty() || outcome.rows[0].failed) break;
      if (row.done < static_cast<int32_t>(row.ids.size())) continue;
      if (!row.decoding && !outcome.rows[0].logits.empty()) first_logits_ = outcome.rows[0].logits[0].values;
      out.push_back(outcome.rows[0].token);
      row.ids.push_back(outcome.rows[0].token);
      row.decoding = true;
      if (out.back() == end) break;
    }
    pages_->release(row.pages);
    return out;
  }

  // Of the last generate(): what its first token was drawn from.
  const std::vector<float>& first_logits() const { return first_logits_; }

  void release(Row& row) { pages_->release(row.pages); }

  LocalRanks& ranks() { return *ranks_; }
  const ResolvedPlan& plan() const { return plan_; }

 private:
  ResolvedPlan plan_;
  std::optional<PageAllocator> pages_;
  std::unique_ptr<LocalRanks> ranks_;
  std::vector<float> first_logits_;
  uint64_t steps_ = 0;
  uint64_t rows_ = 0;
};

}  // namespace lariat
