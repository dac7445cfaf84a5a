// A worker of arithmetic instead of a model, for the scheduler's tests. It really keeps what each slot of
// each page holds and draws each token from the tokens it finds there, so a page in two rows, a position
// skipped, or a stale slot shows as a wrong token or at once as a fault.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "sched/scheduler.h"

namespace lariat::sched_test {

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15 + b + 0x632BE59BD9B4E019;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9;
  return x ^ (x >> 32);
}

// The model: a hash of all tokens so far, and a draw that depends on it, on the key and the counter.
inline uint64_t read_token(uint64_t state, int32_t token) {
  return mix(state, static_cast<uint64_t>(token) + 1);
}
inline int32_t draw(uint64_t state, uint64_t seed, uint32_t choice, uint64_t index, int32_t vocab,
                    const std::vector<int32_t>& banned) {
  for (uint64_t attempt = 0;; ++attempt) {
    const auto token = static_cast<int32_t>(mix(mix(state, seed + choice), index + (attempt << 32)) %
                                            static_cast<uint64_t>(vocab));
    if (std::find(banned.begin(), banned.end(), token) == banned.end()) return token;
  }
}
inline float prompt_logprob(uint64_t state, int32_t next) {
  return -static_cast<float>(mix(state, static_cast<uint64_t>(next)) % 1000) / 100;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> prompt;
  FinishReason finish = FinishReason::kNone;
};

// What a sequence must produce whatever happens around it: one loop, no batch.
inline Answer alone(const SequenceSpec& spec, int64_t tokens_max, int32_t vocab) {
  Answer a;
  const GenerateRequest& r = *spec.request;
  uint64_t state = 0;
  for (size_t i = 0; i < r.prompt.size(); ++i) {
    state = read_token(state, r.prompt[i]);
    if (spec.prompt_logprobs && i + 1 < r.prompt.size())
      a.prompt.push_back(prompt_logprob(state, r.prompt[i + 1]));
  }
  const std::set<int32_t> ends(r.end_ids.begin(), r.end_ids.end());
  while (static_cast<int32_t>(a.tokens.size()) < r.max_tokens) {
    const bool ban = !r.ignore_eos && static_cast<int32_t>(a.tokens.size()) < r.min_tokens;
    const int32_t token =
        draw(state, spec.seed, spec.choice, a.tokens.size(), vocab, ban ? r.end_ids : std::vector<int32_t>{});
    a.tokens.push_back(token);
    state = read_token(state, token);
    if (!r.ignore_eos && ends.contains(token)) {
      a.finish = FinishReason::kStop;
      return a;
    }
    if (static_cast<int64_t>(r.prompt.size() + a.tokens.size()) > tokens_max) break;
  }
  a.finish = FinishReason::kLength;
  return a;
}

class TestWorker {
 public:
  TestWorker(const SchedConfig& config, Epoch epoch) : config_(config), epoch_(epoch) {
    slots_.resize(static_cast<size_t>(config.pages_total) * static_cast<size_t>(config.page_tokens));
  }

  void add(const SequenceSpec& spec) { specs_[spec.id] = spec; }
  // Rows to fail in the next step.
  void poison(RowId id) { poisoned_.insert(id); }
  bool poisoned(RowId id) const { return poisoned_.contains(id); }

  // Checks and runs a plan. A fault is a test failure.
  StepOutcome run(const StepPlan& plan) {
    EXPECT_EQ(plan.epoch, epoch_);
    EXPECT_GT(plan.step, last_step_);
    last_step_ = plan.step;
    EXPECT_LE(static_cast<int32_t>(plan.rows.size()), config_.max_batch);
    for (const RowId id : plan.forget) {
      EXPECT_TRUE(known_.contains(id)) << "told to forget row " << id.get() << " it never saw";
      known_.erase(id);
    }
    StepOutcome outcome;
    outcome.epoch = plan.epoch;
    outcome.step = plan.step;
    std::set<RowId> ids;
    std::set<PageId> pages;
    for (const PlanRow& row : plan.rows) {
      EXPECT_TRUE(ids.insert(row.id).second) << "row " << row.id.get() << " twice";
      EXPECT_EQ(row.pages.size(), 1u);
      for (const PageId page : row.pages.at(0)) {
        EXPECT_TRUE(pages.insert(page).second) << "page " << page.get() << " in two rows";
        EXPECT_TRUE(page.get() >= 0 && page.get() < config_.pages_total);
      }
      known_.insert(row.id);
      outcome.rows.push_back(run(row));
    }
    return outcome;
  }

 private:
  struct Slot {
    RowId row;
    int32_t pos = -1;
    int32_t token = -1;
  };

  Slot& slot(const PlanRow& row, int32_t pos) {
    const PageId page = row.pages.at(0).at(static_cast<size_t>(pos / config_.page_tokens));
    return slots_.at(static_cast<size_t>(page.get()) * static_cast<size_t>(config_.page_tokens) +
                     static_cast<size_t>(pos % config_.page_tokens));
  }

  void check_sampling(const PlanRow& row, const std::vector<int32_t>& tokens) const {
    const SequenceSpec& spec = specs_.at(row.id);
    const GenerateRequest& r = *spec.request;
    EXPECT_EQ(row.sampling.output_index, tokens.size() - r.prompt.size());
    EXPECT_EQ(row.sampling.seed, spec.seed);
    EXPECT_EQ(row.sampling.choice, spec.choice);
    std::map<int32_t, PlanTokenCount> want;
    const bool repetition = r.sampling.repetition_penalty != 1.0f;
    const bool any = repetition || r.sampling.presence_penalty != 0 || r.sampling.frequency_penalty != 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool in_prompt = i < r.prompt.size();
      if (in_prompt ? !repetition : !any) continue;
      PlanTokenCount& c = want[tokens[i]];
      c.id = tokens[i];
      if (in_prompt)
        c.in_prompt = true;
      else
        ++c.in_output;
    }
    EXPECT_EQ(row.sampling.counts.size(), want.size());
    for (const PlanTokenCount& c : row.sampling.counts) EXPECT_EQ(c, want[c.id]);
  }

  RowOutcome run(const PlanRow& row) {
    const SequenceSpec& spec = specs_.at(row.id);
    EXPECT_GE(row.n, 1);
    EXPECT_EQ(static_cast<int32_t>(row.tokens.size()), row.n);
    const int32_t end = row.pos0 + row.n;
    EXPECT_EQ(static_cast<int64_t>(row.pages.at(0).size()),
              (end + config_.page_tokens - 1) / config_.page_tokens);
    RowOutcome out;
    out.id = row.id;
    uint64_t state = 0;
    std::vector<int32_t> tokens;
    for (int32_t pos = 0; pos < end; ++pos) {
      Slot& s = slot(row, pos);
      if (pos < row.pos0)
        EXPECT_TRUE(s.row == row.id && s.pos == pos)
            << "row " << row.id.get() << " expects position " << pos << ", finds that of row " << s.row.get();
      else
        s = {row.id, pos, row.tokens[static_cast<size_t>(pos - row.pos0)]};
      tokens.push_back(s.token);
      state = read_token(state, s.token);
      if (row.prompt_logprobs >= 0 && pos >= row.pos0) {
        const int32_t next =
            pos + 1 < end ? row.tokens[static_cast<size_t>(pos + 1 - row.pos0)] : row.next_token;
        out.prompt.push_back({.logprob = next < 0 ? 0 : prompt_logprob(state, next), .top = {}});
      }
    }
    EXPECT_EQ(row.prompt_logprobs >= 0, row.wanted == LogitsWanted::kAll);
    if (poisoned_.erase(row.id) > 0) {
      out.failed = true;
      out.error = Errc::kInternal;
      out.message = "NaN in the logits";
      return out;
    }
    if (row.sample) {
      EXPECT_NE(row.wanted, LogitsWanted::kNone);
      EXPECT_GE(tokens.size(), spec.request->prompt.size());
      check_sampling(row, tokens);
      out.token =
          draw(state, spec.seed, spec.choice, row.sampling.output_index, config_.vocab, row.sampling.banned);
    }
    return out;
  }

  SchedConfig config_;
  Epoch epoch_;
  StepId last_step_;
  std::vector<Slot> slots_;
  std::map<RowId, SequenceSpec> specs_;
  std::set<RowId> known_;
  std::set<RowId> poisoned_;
};

}  // namespace lariat::sched_test
