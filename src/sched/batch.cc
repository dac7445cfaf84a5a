// What the next step holds: pages for rows that grow, rows that enter the batch, chunks of prompts.
#include <algorithm>
#include <tuple>

#include "sched/scheduler.h"

namespace lariat {

std::optional<StepPlan> Scheduler::next(Time now) {
  if (!formed_ || in_flight_) return std::nullopt;
  grow();
  admit(now);
  if (running_.empty()) return std::nullopt;

  StepPlan plan;
  plan.epoch = epoch_;
  plan.step = StepId(++steps_);
  in_flight_.emplace(InFlight{plan.step, {}});
  for (const auto& [arrival, row] : running_)
    if (row->decoding()) schedule(*row, 1, plan);
  schedule_prompts(plan);
  LARIAT_CHECK(!plan.rows.empty(), "{} rows run and none advances", running_.size());
  plan.forget = std::move(forget_);
  forget_.clear();
  return plan;
}

// Pages for every known token of every row in the batch, oldest first.
void Scheduler::grow() {
  // A row taken out on the way is younger than the one it made room for, or that one itself.
  for (auto it = running_.begin(); it != running_.end();) {
    Row& row = *it->second;
    while (!take_pages(row)) {
      Row& youngest = *running_.rbegin()->second;
      put_back(youngest);
      if (&youngest == &row) break;
    }
    it = running_.upper_bound(row.arrival());
  }
}

bool Scheduler::take_pages(Row& row) {
  const int64_t missing = pages_for(row.length()) - static_cast<int64_t>(row.pages.size());
  return missing <= 0 || pages_.take(missing, row.pages);
}

void Scheduler::put_back(Row& row) {
  LARIAT_CHECK(running_.size() > 1, "row {} alone outgrew the pool of {} pages", row.id().get(),
               pages_.total());
  pages_.release(row.pages);
  row.pages.clear();
  row.lose_kv();
  row.overtaken = kOvertakenMax;  // it had its turn: nobody passes it
  ++row.preemptions;
  ++totals_.preemptions_total;
  running_.erase(row.arrival());
  waiting_.emplace(row.arrival(), &row);
}

void Scheduler::admit(Time now) {
  std::vector<Row*> passed;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (static_cast<int32_t>(running_.size()) >= config_.max_batch) return;
    Row& row = *it->second;
    // A page for each row that runs: without it the next token of an older row would put this one back.
    const int64_t reserve = static_cast<int64_t>(running_.size());
    if (pages_for(row.length()) + reserve > pages_.free()) {
      if (row.overtaken >= kOvertakenMax) return;
      passed.push_back(&row);
      ++it;
      continue;
    }
    const bool taken = take_pages(row);
    LARIAT_CHECK(taken, "row {}: {} pages free", row.id().get(), pages_.free());
    if (!row.started) row.started = now;
    row.last_served = steps_;
    it = waiting_.erase(it);
    running_.emplace(row.arrival(), &row);
    for (Row* older : passed) ++older->overtaken;
    if (std::any_of(passed.begin(), passed.end(), [](Row* r) { return r->overtaken >= kOvertakenMax; }))
      return;
  }
}

void Scheduler::schedule(Row& row, int64_t n, StepPlan& plan) {
  plan.rows.push_back(row.plan(n, config_.page_tokens, config_.vocab));
  const PlanRow& planned = plan.rows.back();
  in_flight_->rows.push_back(
      {planned.id, planned.pos0, planned.n, planned.sample, planned.prompt_logprobs >= 0});
  row.in_flight = true;
  row.seen_by_group = true;
  row.last_served = steps_;
}

// Rows with a prompt to read (or to read again), the one to serve first in front.
std::vector<Row*> Scheduler::prompts_in_turn() const {
  std::vector<std::tuple<bool, double, uint64_t, Row*>> order;
  for (const auto& [arrival, row] : running_) {
    if (row->decoding()) continue;
    const bool patient = steps_ - row->last_served <= kPatience;
    const double rank =
        patient ? config_.work.of(row->resident(), row->remaining()) : static_cast<double>(row->last_served);
    order.emplace_back(patient, rank, arrival, row);
  }
  std::sort(order.begin(), order.end());
  std::vector<Row*> rows;
  for (const auto& entry : order) rows.push_back(std::get<Row*>(entry));
  return rows;
}

void Scheduler::schedule_prompts(StepPlan& plan) {
  const bool whole = config_.chunk_tokens == 0;
  int64_t tokens_left = config_.chunk_tokens;
  double work_left = config_.work.of(0, config_.chunk_tokens);
  bool first = true;
  for (Row* row : prompts_in_turn()) {
    const int64_t remaining = row->remaining();
    int64_t n = remaining;
    if (!whole) {
      const int64_t floor = std::min<int64_t>(remaining, config_.chunk_floor);
      n = config_.work.tokens_within(row->resident(), std::min(remaining, tokens_left), work_left);
      if (first) n = std::max(n, std::min(floor, tokens_left));
      if (n < floor && !(first && n > 0)) continue;
      tokens_left -= n;
      work_left -= config_.work.of(row->resident(), n);
    }
    first = false;
    schedule(*row, n, plan);
  }
}

}  // namespace lariat
