// An Engine for tests: one token a step for every choice, by a script. Deterministic but for time.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "head/engine.h"

namespace lariat {

struct ToyScript {
  std::chrono::milliseconds step{0};
  int prefill_steps = 0;
  int stop_after = -1;  // tokens until the end token; -1: until max_tokens
  int fail_after = -1;  // tokens until an engine failure
  std::optional<Error> refuse = {};
  size_t text_repeat = 1;  // letters a token
  int rows_max = 1 << 20;
};

class ToyEngine : public Engine {
 public:
  using Script = ToyScript;

  explicit ToyEngine(Script script = {}) : script_(std::move(script)), thread_([this] { run(); }) {}
  ~ToyEngine() override {
    {
      const std::lock_guard lock(mutex_);
      quit_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Status submit(GenerateRequest request, GenerationSink sink) override {
    const std::lock_guard lock(mutex_);
    if (script_.refuse) return *script_.refuse;
    ++submitted_;
    rows_.push_back({std::move(request), std::move(sink), script_.prefill_steps, 0});
    changed_.notify_all();
    return Ok{};
  }
  bool cancel(const std::string& id) override {
    const std::lock_guard lock(mutex_);
    const size_t before = rows_.size();
    rows_.remove_if([&](const Row& r) { return r.request.id == id; });
    changed_.notify_all();
    cancelled_ += before != rows_.size();
    return before != rows_.size();
  }
  EngineState state() const override {
    const std::lock_guard lock(mutex_);
    EngineState s;
    s.model = "toy";
    s.ready = ready_;
    s.reason = ready_ ? "" : "rank 0 is starting";
    s.requests_running = std::min<int64_t>(static_cast<int64_t>(rows_.size()), script_.rows_max);
    s.requests_waiting = static_cast<int64_t>(rows_.size()) - s.requests_running;
    s.kv_pages_used = s.requests_running;
    s.kv_pages_total = 1000;
    s.epoch = 3;
    s.worker_restarts_total = 2;
    for (int32_t rank = 0; rank < 2; ++rank) {
      RankState& r = s.ranks.emplace_back();
      r.rank = rank;
      r.state = ready_ || rank == 1 ? "ready" : "starting";
      r.restarts = 2;
      r.heartbeat_age_ms = 250;
      r.comm_wait_us = 1500 * rank;
      r.comm_wait_total_us = 2'500'000 * rank;
      r.rss_bytes = 4096;
    }
    s.last_recovery = RecoveryState{2, 1, "rank 1 is gone", 10, 20, {}};
    for (const Row& r : rows_) s.requests.emplace_back().id = r.request.id;
    return s;
  }

  void set_script(Script script) {
    const std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }
  void set_ready(bool ready) {
    const std::lock_guard lock(mutex_);
    ready_ = ready;
  }
  int submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  // False if it has not come to `rows` requests within the time.
  bool wait_rows(size_t rows, std::chrono::milliseconds timeout) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return rows_.size() == rows; });
  }
  bool wait_submitted(int count, std::chrono::milliseconds timeout) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return submitted_ >= count; });
  }

 private:
  struct Row {
    GenerateRequest request;
    GenerationSink sink;
    int prefill_left = 0;
    int produced = 0;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!quit_) {
      if (rows_.empty()) {
        changed_.wait(lock, [&] { return quit_ || !rows_.empty(); });
      } else if (script_.step.count() > 0) {
        changed_.wait_for(lock, script_.step, [&] { return quit_; });
      }
      if (quit_) return;
      int left = script_.rows_max;
      for (auto it = rows_.begin(); it != rows_.end() && left > 0; --left) {
        it = step(*it) ? rows_.erase(it) : std::next(it);
      }
      changed_.notify_all();
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }

  TokenText token(const GenerateRequest& r, int choice, int index) const {
    TokenText t;
    t.id = 'a' + (index + choice) % 26;
    t.bytes = std::string(script_.text_repeat, static_cast<char>(t.id));
    t.logprob = -0.5f;
    for (int i = 0; i < r.top_logprobs; ++i)
      t.top.push_back({'A' + i, std::string(1, static_cast<char>('A' + i)), -1.0f});
    return t;
  }

  // True when the row has ended.
  bool step(Row& row) {
    if (row.prefill_left-- > 0) return false;
    GenerationEvents events;
    const GenerateRequest& r = row.request;
    if (row.produced == 0 && r.prompt_logprobs >= 0) {
      events.prompt.emplace();
      for (const int32_t id : r.prompt) {
        TokenText& t = events.prompt->tokens.emplace_back();
        t.id = id;
        t.bytes = id < 256 ? std::string(1, static_cast<char>(id)) : "";
        t.logprob = -1.5f;
      }
    }
    const bool fail = script_.fail_after >= 0 && row.produced >= script_.fail_after;
    const bool stop = row.produced == script_.stop_after;
    const bool nothing = r.max_tokens == 0;
    const bool last = row.produced + 1 == r.max_tokens;
    for (int32_t c = 0; c < r.n; ++c) {
      ChoiceEvent& e = events.choices.emplace_back();
      e.choice = c;
      if (fail) {
        e.finish = FinishReason::kError;
        e.error = make_error(Errc::kInternal, "rank 0 was lost");
      } else if (nothing) {
        e.finish = FinishReason::kLength;
      } else if (stop) {
        e.finish = FinishReason::kStop;
      } else {
        const TokenText t = token(r, c, row.produced);
        e.text = t.bytes;
        e.token_ids = {t.id};
        if (r.top_logprobs >= 0) e.logprobs = {t};
        if (last) e.finish = FinishReason::kLength;
      }
    }
    if (!nothing) ++row.produced;
    events.done = fail || stop || last || nothing;
    events.usage.prompt_tokens = static_cast<int64_t>(r.prompt.size());
    events.usage.completion_tokens = static_cast<int64_t>(row.produced) * r.n;
    const bool done = events.done;
    row.sink(std::move(events));
    return done;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Script script_;
  std::list<Row> rows_;
  bool ready_ = true;
  bool quit_ = false;
  int submitted_ = 0;
  int cancelled_ = 0;
  std::thread thread_;
};

}  // namespace lariat
