// Rows come and go: admission checks, cancelling, outcomes, loss of the group. What a step holds: batch.cc.
#include "sched/scheduler.h"

#include <algorithm>

namespace lariat {
namespace {

Error bad(std::string message, std::string param = {}) {
  return make_error(Errc::kInvalidArgument, std::move(message), std::move(param));
}

Status at_least(int64_t value, int64_t low, std::string_view name) {
  if (value < low)
    return bad(fmt::format("{} must be at least {}, not {}", name, low, value), std::string(name));
  return Ok{};
}

// The first id outside [0, vocab), or nothing.
std::optional<int32_t> outside(const std::vector<int32_t>& ids, int32_t vocab) {
  const auto it = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab; });
  return it == ids.end() ? std::nullopt : std::optional<int32_t>(*it);
}

}  // namespace

Result<Scheduler> Scheduler::create(const SchedConfig& config) {
  LARIAT_RETURN_IF_ERROR(at_least(config.page_tokens, 1, "page-tokens"));
  LARIAT_RETURN_IF_ERROR(at_least(config.max_batch, 1, "max-batch"));
  LARIAT_RETURN_IF_ERROR(at_least(config.chunk_tokens, 0, "chunk-tokens"));
  LARIAT_RETURN_IF_ERROR(at_least(config.chunk_floor, 1, "chunk floor"));
  LARIAT_RETURN_IF_ERROR(at_least(config.context, 1, "context"));
  LARIAT_RETURN_IF_ERROR(at_least(config.queue_max, 0, "queue"));
  LARIAT_RETURN_IF_ERROR(at_least(config.vocab, 1, "vocabulary"));
  if (!(config.work.token > 0) || !(config.work.depth >= 0))
    return bad(
        fmt::format("work of a token {} and of its depth {}: the one must be positive, the other not "
                    "negative",
                    config.work.token, config.work.depth));
  LARIAT_ASSIGN(PageAllocator pages, PageAllocator::create(config.pages_total));
  return Scheduler(config, std::move(pages));
}

int64_t Scheduler::tokens_max() const {
  return std::min<int64_t>(config_.context, int64_t{config_.pages_total} * config_.page_tokens);
}

Status Scheduler::check(const SequenceSpec& spec) const {
  const GenerateRequest& r = *spec.request;
  const auto prompt = static_cast<int64_t>(r.prompt.size());
  if (prompt == 0) return bad("prompt: has no tokens", "prompt");
  if (prompt > config_.context)
    return bad(fmt::format("prompt: has {} tokens, the context is {}", prompt, config_.context), "prompt");
  if (prompt > tokens_max())
    return bad(fmt::format("prompt: has {} tokens, the KV memory holds {} ({} pages of {})", prompt,
                           tokens_max(), config_.pages_total, config_.page_tokens),
               "prompt");
  if (const auto id = outside(r.prompt, config_.vocab))
    return bad(fmt::format("prompt: token id {} is not in the vocabulary of {}", *id, config_.vocab),
               "prompt");
  if (r.max_tokens < 0) return bad(fmt::format("max_tokens: is {}", r.max_tokens), "max_tokens");
  for (const auto& [id, bias] : r.sampling.logit_bias)
    if (id < 0 || id >= config_.vocab)
      return bad(fmt::format("logit_bias: token id {} is not in the vocabulary of {}", id, config_.vocab),
                 "logit_bias");
  return Ok{};
}

Status Scheduler::add(std::span<const SequenceSpec> specs, Time now) {
  for (const SequenceSpec& spec : specs) {
    LARIAT_CHECK(spec.request != nullptr, "row {} has no request", spec.id.get());
    LARIAT_RETURN_IF_ERROR(check(spec));
  }
  // A request of more choices than batch and queue together still runs when nothing else does.
  const int64_t room = int64_t{config_.max_batch} + config_.queue_max - static_cast<int64_t>(rows_.size());
  if (!rows_.empty() && static_cast<int64_t>(specs.size()) > room)
    return make_error(Errc::kResourceExhausted,
                      fmt::format("{} running and {} waiting: the queue of {} is full", running_.size(),
                                  waiting_.size(), config_.queue_max));
  for (const SequenceSpec& spec : specs) {
    auto row = std::make_unique<Row>(spec, arrivals_++, now);
    waiting_.emplace(row->arrival(), row.get());
    const bool novel = rows_.emplace(spec.id, std::move(row)).second;
    LARIAT_CHECK(novel, "row {} is known already", spec.id.get());
  }
  return Ok{};
}

bool Scheduler::cancel(RowId id) {
  const auto it = rows_.find(id);
  if (it == rows_.end() || it->second->cancelled) return false;
  Row& row = *it->second;
  if (row.in_flight)
    row.cancelled = true;
  else
    finish(row);
  return true;
}

void Scheduler::finish(Row& row) {
  pages_.release(row.pages);
  if (row.seen_by_group) forget_.push_back(row.id());
  running_.erase(row.arrival());
  waiting_.erase(row.arrival());
  rows_.erase(row.id());
}

Status Scheduler::check_answers(const StepOutcome& outcome) const {
  const auto corrupt = [&](std::string what) {
    return make_error(Errc::kCorruptData, fmt::format("outcome of step {}: {}", outcome.step.get(), what));
  };
  if (outcome.epoch != epoch_ || outcome.step != in_flight_->step)
    return corrupt(fmt::format("epoch {}, but step {} of epoch {} is in flight", outcome.epoch.get(),
                               in_flight_->step.get(), epoch_.get()));
  if (outcome.rows.size() != in_flight_->rows.size())
    return corrupt(fmt::format("{} rows, {} planned", outcome.rows.size(), in_flight_->rows.size()));
  for (size_t i = 0; i < outcome.rows.size(); ++i) {
    const PlannedRow& planned = in_flight_->rows[i];
    const RowOutcome& row = outcome.rows[i];
    if (row.id != planned.id)
      return corrupt(fmt::format("row {} where {} was planned", row.id.get(), planned.id.get()));
    if (row.failed) continue;
    if (planned.sample && (row.token < 0 || row.token >= config_.vocab))
      return corrupt(
          fmt::format("row {} drew token {} of a vocabulary of {}", row.id.get(), row.token, config_.vocab));
    if (planned.prompt_logprobs && row.prompt.size() != static_cast<size_t>(planned.n))
      return corrupt(fmt::format("row {} has prompt log-probabilities of {} positions, {} planned",
                                 row.id.get(), row.prompt.size(), planned.n));
  }
  return Ok{};
}

Result<std::vector<SequenceEvent>> Scheduler::complete(const StepOutcome& outcome, Time now) {
  std::vector<SequenceEvent> events;
  if (!in_flight_ || outcome.epoch < epoch_) return events;
  LARIAT_RETURN_IF_ERROR(check_answers(outcome));
  const InFlight done = std::move(*in_flight_);
  in_flight_.reset();
  ++totals_.steps_total;
  for (size_t i = 0; i < done.rows.size(); ++i) {
    Row& row = *rows_.at(done.rows[i].id);
    row.in_flight = false;
    totals_.tokens_computed_total += done.rows[i].n;
    if (row.cancelled) {
      finish(row);
      continue;
    }
    SequenceEvent event = row.apply(done.rows[i], outcome.rows[i], tokens_max(), now);
    if (event.finish != FinishReason::kNone) finish(row);
    if (event.token || !event.prompt.empty() || event.finish != FinishReason::kNone)
      events.push_back(std::move(event));
  }
  return events;
}

void Scheduler::group_lost() {
  formed_ = false;
  if (in_flight_) {
    for (const PlannedRow& planned : in_flight_->rows) {
      Row& row = *rows_.at(planned.id);
      row.in_flight = false;
      if (row.cancelled) finish(row);
    }
    in_flight_.reset();
  }
  // Pages stay where they are: a table is logical, and the rows will fill them again.
  for (const auto& [arrival, row] : running_) row->lose_kv();
  for (const auto& [id, row] : rows_) row->seen_by_group = false;  // new workers know of no row
  forget_.clear();
}

void Scheduler::group_formed(Epoch epoch) {
  LARIAT_CHECK(!formed_, "the group of epoch {} was not lost", epoch_.get());
  LARIAT_CHECK(epoch > epoch_ || steps_ == 0, "epoch {} after {}", epoch.get(), epoch_.get());
  epoch_ = epoch;
  formed_ = true;
}

SchedCounts Scheduler::counts() const {
  SchedCounts c = totals_;
  c.rows_running = static_cast<int64_t>(running_.size());
  c.rows_waiting = static_cast<int64_t>(waiting_.size());
  c.pages_used = pages_.used();
  c.pages_total = pages_.total();
  return c;
}

std::optional<RowProgress> Scheduler::progress(RowId id) const {
  const auto it = rows_.find(id);
  if (it == rows_.end()) return std::nullopt;
  return it->second->progress(running_.contains(it->second->arrival()));
}

std::vector<RowProgress> Scheduler::rows() const {
  std::vector<RowProgress> out;
  for (const auto* set : {&running_, &waiting_})
    for (const auto& [arrival, row] : *set) out.push_back(row->progress(set == &running_));
  return out;
}

}  // namespace lariat
