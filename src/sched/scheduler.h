// Which rows run in the next step, with which tokens and pages: a pure state machine. It opens no socket,
// reads no clock and starts no thread; the same calls give the same plans. docs/design.md §5.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "pages/page_allocator.h"
#include "plan/step_plan.h"
#include "sched/row.h"
#include "sched/sequence.h"
#include "sched/work.h"

namespace lariat {

struct SchedConfig {
  int32_t pages_total = 0;
  int32_t page_tokens = 0;
  int32_t max_batch = 8;     // rows in the batch at a time, and so in a step
  int32_t chunk_tokens = 0;  // prompt tokens a step at most, over all rows; 0: whole prompts
  // The chunk shrinks with depth until its work is that of chunk_tokens at depth 0, but not below this:
  // shorter chunks would spend a step on overhead.
  int32_t chunk_floor = 64;
  int32_t context = 0;      // tokens a row may store
  int32_t queue_max = 256;  // rows waiting beyond the batch
  int32_t vocab = 0;
  WorkModel work;
};

struct SchedCounts {
  int64_t rows_running = 0;
  int64_t rows_waiting = 0;
  int64_t pages_used = 0;
  int64_t pages_total = 0;
  int64_t steps_total = 0;        // completed
  int64_t preemptions_total = 0;  // rows put back for want of pages
  int64_t tokens_computed_total = 0;
};

// Policy, each point with a test:
// - Every decoding row is in every step; beside them prompts advance by chunks of bounded work. The prompt
// with
//   the least work left goes first, and one that got nothing for kPatience steps goes before it, so neither a
//   short prompt behind a long one nor a long one among many short ones starves.
// - A row enters the batch when pages for all its known tokens are free, and one more for each row already
//   there. Oldest first; a younger row that fits may overtake one that does not, kOvertakenMax times.
// - When a decoding row finds no page, the youngest row in the batch gives up its pages and waits again, its
//   tokens kept. The oldest is never put back, and no row outgrows the pool, so some row always advances.
// - A row stores at most min(context, pool) tokens and its last token need not be stored: a prompt that fills
//   the context gives one token. A row that ends for either reason ends with kLength.
class Scheduler {
 public:
  static constexpr uint64_t kPatience = 4;
  static constexpr int32_t kOvertakenMax = 32;

  // kInvalidArgument names the number that makes no sense. Nothing runs before group_formed().
  static Result<Scheduler> create(const SchedConfig& config);

  // Takes all the choices of one request, or none and says why: kInvalidArgument for what can never run (no
  // tokens, an id outside the vocabulary, a prompt longer than the context or the pool, both numbers named),
  // kResourceExhausted when batch and queue are full.
  Status add(std::span<const SequenceSpec> specs, Time now);

  // Forgets the row; no event of it follows. Its pages are free at once, or at the end of the step in flight
  // if that writes them. False if the id is not known (any more).
  bool cancel(RowId id);

  // The next step, or nothing: a step is in flight, the group is not formed, or there is nothing to do.
  std::optional<StepPlan> next(Time now);

  // Takes the outcome of the step in flight: one event a row that has news, in the plan's order. An outcome
  // of an earlier epoch, or one with no step in flight, is old news and gives none. kCorruptData if it does
  // not answer the plan: nothing changed, the step is still in flight, and the group is not to be trusted.
  Result<std::vector<SequenceEvent>> complete(const StepOutcome& outcome, Time now);

  // The step in flight is void and every K and V is gone. Rows stay as they are and will recompute from their
  // tokens; what was emitted is not drawn again. Nothing runs until the group is formed under a higher epoch.
  void group_lost();
  void group_formed(Epoch epoch);

  bool step_in_flight() const { return in_flight_.has_value(); }
  bool idle() const { return rows_.empty(); }  // no row waits or runs
  Epoch epoch() const { return epoch_; }
  // Tokens a row can store: min(context, pool).
  int64_t tokens_max() const;
  // Most tokens a step can have; 0 if bounded by the context alone (chunk_tokens 0).
  int64_t step_tokens_max() const {
    return config_.chunk_tokens > 0 ? config_.chunk_tokens + config_.max_batch : 0;
  }
  SchedCounts counts() const;
  std::optional<RowProgress> progress(RowId id) const;
  std::vector<RowProgress> rows() const;  // oldest first

 private:
  struct InFlight {
    StepId step;
    std::vector<PlannedRow> rows;
  };

  Scheduler(const SchedConfig& config, PageAllocator pages) : config_(config), pages_(std::move(pages)) {}

  Status check(const SequenceSpec& spec) const;
  Status check_answers(const StepOutcome& outcome) const;
  int64_t pages_for(int64_t tokens) const { return (tokens + config_.page_tokens - 1) / config_.page_tokens; }
  void grow();
  bool take_pages(Row& row);
  void put_back(Row& row);
  void admit(Time now);
  void schedule(Row& row, int64_t n, StepPlan& plan);
  void schedule_prompts(StepPlan& plan);
  std::vector<Row*> prompts_in_turn() const;
  void finish(Row& row);

  SchedConfig config_;
  PageAllocator pages_;
  std::map<RowId, std::unique_ptr<Row>> rows_;
  std::map<uint64_t, Row*> running_;  // by arrival: oldest first
  std::map<uint64_t, Row*> waiting_;
  std::vector<RowId> forget_;
  std::optional<InFlight> in_flight_;
  bool formed_ = false;
  Epoch epoch_;
  uint64_t arrivals_ = 0;
  uint64_t steps_ = 0;  // planned so far; the last one's id
  SchedCounts totals_;
};

}  // namespace lariat
