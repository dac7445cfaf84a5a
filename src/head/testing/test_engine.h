// An engine over ranks that are threads around the toy model, and what it delivers.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "head/engine_impl.h"
#include "head/rank_group.h"
#include "head/testing/test_rank_link.h"

namespace lariat {

constexpr std::chrono::milliseconds kTestDeadline{30'000};

// What came of one request. Its sink checks the contract of GenerationEvents as it goes.
class Collected {
 public:
  struct Choice {
    std::string text;
    std::vector<int32_t> tokens;
    std::vector<TokenText> logprobs;
    FinishReason finish = FinishReason::kNone;
    Error error;
  };

  GenerationSink sink() {
    return [this](GenerationEvents events) { take(std::move(events)); };
  }
  // Runs on every delivery, on the engine's thread.
  std::function<void()> on_event;

  bool wait_done() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTestDeadline, [&] { return done_; });
  }
  bool wait_tokens(size_t n, int32_t choice = 0) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTestDeadline, [&] {
      return done_ || choices_[choice].tokens.size() >= n;
    }) && choices_[choice].tokens.size() >= n;
  }
  Choice choice(int32_t c = 0) {
    const std::lock_guard lock(mutex_);
    return choices_[c];
  }
  size_t choices() {
    const std::lock_guard lock(mutex_);
    return choices_.size();
  }
  std::optional<PromptEvent> prompt() {
    const std::lock_guard lock(mutex_);
    return prompt_;
  }
  Usage usage() {
    const std::lock_guard lock(mutex_);
    return usage_;
  }
  int events() {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  // From now on a delivery is a fault.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }

 private:
  void take(GenerationEvents events) {
    std::function<void()> hook;
    {
      const std::lock_guard lock(mutex_);
      EXPECT_FALSE(closed_) << "an event after cancel() returned";
      EXPECT_FALSE(done_) << "an event after done";
      ++events_;
      if (events.prompt) {
        EXPECT_TRUE(choices_.empty() && !prompt_) << "the prompt's event comes first and once";
        prompt_ = std::move(events.prompt);
      }
      for (ChoiceEvent& e : events.choices) {
        Choice& c = choices_[e.choice];
        EXPECT_EQ(c.finish, FinishReason::kNone) << "an event of choice " << e.choice << " after its end";
        c.text += e.text;
        c.tokens.insert(c.tokens.end(), e.token_ids.begin(), e.token_ids.end());
        c.logprobs.insert(c.logprobs.end(), e.logprobs.begin(), e.logprobs.end());
        c.finish = e.finish;
        c.error = e.error;
      }
      done_ = events.done;
      usage_ = events.usage;
      hook = on_event;
      // The last thing that touches this object: whoever waits for done may destroy it.
      changed_.notify_all();
    }
    if (hook) hook();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, Choice> choices_;
  std::optional<PromptEvent> prompt_;
  Usage usage_;
  int events_ = 0;
  bool done_ = false;
  bool closed_ = false;
};

inline GenerateRequest request_of(std::string id, std::vector<int32_t> prompt, int32_t max_tokens) {
  GenerateRequest r;
  r.id = std::move(id);
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  return r;
}

// The prompt 1, 2, .. with a twist, so that prompts of different `tag` share no beginning.
inline std::vector<int32_t> prompt_of(int32_t length, int32_t tag) {
  std::vector<int32_t> prompt;
  prompt.reserve(static_cast<size_t>(length));
  for (int32_t i = 0; i < length; ++i) prompt.push_back((i * 7 + tag * 13 + 1) % 200);
  return prompt;
}

// The answer the toy model owes to the request's choice, whatever happens on the way.
inline std::vector<int32_t> expected(const GenerateRequest& r, int32_t vocab, int32_t choice = 0) {
  PlanSampling s;
  s.temperature = r.sampling.temperature;
  s.seed = r.seed.value_or(0);
  s.choice = static_cast<uint32_t>(choice);
  return ToyExecutor::generate(r.prompt, vocab, r.max_tokens, s, r.end_ids);
}

// Slowness as an ingredient of a test: a stalled step, a pause between messages. Never to wait for something.
inline void be_slow(std::chrono::milliseconds time) {
  std::this_thread::sleep_for(time);
}

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    options_.model = "toy";
    options_.sched.context = 4096;
    options_.sched.max_batch = 4;
    options_.sched.queue_max = 16;
    options_.retry_min = std::chrono::milliseconds(50);
    group_.heartbeat_timeout = std::chrono::milliseconds(20'000);
  }

  void start(const Tokenizer* tokenizer = nullptr) {
    if (!ranks_.factory) ranks_.factory = toy_factory(toy_);
    group_.world = ranks_.world;
    auto group = std::make_unique<RankGroup>(
        group_,
        [this](int32_t rank, Epoch epoch, RankLinkEvents events) -> Result<std::unique_ptr<RankLink>> {
          if (on_start) {
            if (const Status s = on_start(rank, epoch); !s.ok()) return s.error();
          }
          auto link = std::make_unique<TestRankLink>(rank, ranks_, std::move(events));
          const std::lock_guard lock(link_mutex_);
          link_ = link.get();
          return std::unique_ptr<RankLink>(std::move(link));
        });
    engine_ = std::make_unique<EngineImpl>(options_, std::move(group), tokenizer);
    engine_->start();
  }
  void start_ready(const Tokenizer* tokenizer = nullptr) {
    start(tokenizer);
    const Status ready = engine_->wait_ready(kTestDeadline);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
  }
  // Polls state() until it holds or the deadline passes.
  bool eventually(const std::function<bool(const EngineState&)>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + kTestDeadline;
    while (std::chrono::steady_clock::now() < deadline) {
      if (holds(engine_->state())) return true;
      std::this_thread::yield();
    }
    return false;
  }
  bool all_pages_free() {
    return eventually([](const EngineState& s) { return s.kv_pages_used == 0 && s.requests.empty(); });
  }

  EngineOptions options_;
  RankGroupOptions group_;
  ToyOptions toy_;
  TestRankOptions ranks_;
  std::function<Status(int32_t, Epoch)> on_start;
  std::mutex link_mutex_;
  TestRankLink* link_ = nullptr;  // the last one started
  std::unique_ptr<EngineImpl> engine_;
};

}  // namespace lariat
