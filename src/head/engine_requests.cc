// What other threads ask of the engine.
#include <algorithm>
#include <random>

#include "base/log.h"
#include "head/engine_impl.h"
#include "plan/validate.h"
#include "sched/sampling.h"

namespace lariat {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

Error bad(std::string message, std::string param) {
  return make_error(Errc::kInvalidArgument, std::move(message), std::move(param));
}

}  // namespace

Status EngineImpl::wait_ready(std::chrono::milliseconds timeout) {
  Lock lock(mutex_);
  state_changed_.wait_for(lock, timeout, [&] { return ready_ || failed_; });
  if (failed_) return *failed_;
  if (ready_) return Ok{};
  return make_error(Errc::kDeadlineExceeded,
                    fmt::format("not ready after {} ms: {}", timeout.count(), reason()));
}

std::string EngineImpl::reason() const {
  if (draining_) return "the server is shutting down";
  if (failed_) return failed_->message;
  if (ready_) return "";
  std::string text = retry_at_ ? "waiting to start the ranks again" : group_->forming();
  if (text.empty()) text = "the ranks are ready";
  if (!last_loss_.empty()) text += fmt::format(" (epoch {}; before: {})", epoch_.get(), last_loss_);
  return text;
}

// What the scheduler does not ask, because it does not read these fields, and what a rank would refuse.
Status EngineImpl::admissible(const GenerateRequest& r) const {
  if (asked_.contains(r.id)) return bad(fmt::format("request id '{}' is in use", r.id), "id");
  if (r.n < 1) return bad(fmt::format("n is {}", r.n), "n");
  if (r.min_tokens < 0 || r.min_tokens > r.max_tokens)
    return bad(fmt::format("min_tokens is {}, max_tokens {}", r.min_tokens, r.max_tokens), "min_tokens");
  if (std::any_of(r.stop.begin(), r.stop.end(), [](const std::string& s) { return s.empty(); }))
    return bad("a stop string is empty", "stop");
  if (r.prompt_logprobs > options_.top_logprobs_max)
    return bad(fmt::format("{} prompt logprobs of at most {}", r.prompt_logprobs, options_.top_logprobs_max),
               "logprobs");
  if (const Status s = check_sampling(sampling_of(r), hello_.vocab, options_.top_logprobs_max); !s.ok())
    return bad(s.error().message, s.error().param);
  return Ok{};
}

Status EngineImpl::submit(GenerateRequest request, GenerationSink sink) {
  const Time now = std::chrono::steady_clock::now();
  {
    const Lock lock(mutex_);
    if (!ready_ || draining_) return make_error(Errc::kUnavailable, reason());
    LARIAT_RETURN_IF_ERROR(admissible(request));
    const uint64_t seed = request.seed ? *request.seed : random_seed();
    const auto shared = std::make_shared<const GenerateRequest>(std::move(request));
    const RowId first(rows_made_ + 1);
    std::vector<SequenceSpec> specs;
    for (int32_t c = 0; c < shared->n; ++c) {
      SequenceSpec& spec = specs.emplace_back();
      spec.id = RowId(first.get() + static_cast<uint64_t>(c));
      spec.request = shared;
      spec.choice = static_cast<uint32_t>(c);
      spec.seed = seed;
      spec.prompt_logprobs = c == 0 && shared->prompt_logprobs >= 0;
    }
    LARIAT_RETURN_IF_ERROR(scheduler_->add(specs, now));
    rows_made_ += static_cast<uint64_t>(shared->n);
    const std::shared_ptr<Asked> asked(
        new Asked{shared->id, Generation(shared, first, tokenizer_), std::move(sink), now});
    asked_.emplace(shared->id, asked);
    for (const SequenceSpec& spec : specs) by_row_.emplace(spec.id, asked);
    ++totals_.requests_total;
    totals_.prompt_tokens_total += static_cast<int64_t>(shared->prompt.size());
  }
  poke();
  return Ok{};
}

bool EngineImpl::cancel(const std::string& id) {
  Lock lock(mutex_);
  const auto it = asked_.find(id);
  if (it == asked_.end()) return false;
  const std::shared_ptr<Asked> asked = it->second;
  asked_.erase(it);
  asked->cancelled = true;
  end_rows(asked->generation);
  ++totals_.requests_cancelled_total;
  if (std::this_thread::get_id() != thread_.get_id())
    delivered_.wait(lock, [&] { return delivering_ != asked.get(); });
  lock.unlock();
  poke();
  return true;
}

void EngineImpl::cancel_row(RowId row) {
  by_row_.erase(row);
  if (!scheduler_ || !scheduler_->cancel(row)) return;
  if (step_rows_.erase(row) > 0 && step_rows_.empty()) group_->abort(epoch_, step_);
}

void EngineImpl::end_rows(const Generation& generation) {
  for (int32_t c = 0; c < generation.request().n; ++c) {
    if (!generation.choice_done(c)) cancel_row(generation.row(c));
  }
}

void EngineImpl::fail(Asked& asked, const Error& error) {
  if (asked.generation.done()) return;
  end_rows(asked.generation);
  asked.generation.fail(error);
  mark(asked);
}

void EngineImpl::mark(Asked& asked) {
  if (std::exchange(asked.dirty, true)) return;
  dirty_.push_back(asked_.at(asked.id));
}

RequestState EngineImpl::state_of(const Asked& asked, Time now) const {
  RequestState s;
  s.id = asked.id;
  s.state = "waiting";
  const Usage& usage = asked.generation.usage();
  s.prompt_tokens = usage.prompt_tokens;
  s.completion_tokens = usage.completion_tokens;
  s.age_seconds = std::chrono::duration<double>(now - asked.submitted).count();
  for (int32_t c = 0; c < asked.generation.request().n; ++c) {
    if (asked.generation.choice_done(c)) {
      s.prefilled_tokens = s.prompt_tokens;
      s.state = "decode";
      continue;
    }
    const auto row = scheduler_->progress(asked.generation.row(c));
    if (!row) continue;
    s.prefilled_tokens = std::max(s.prefilled_tokens, std::min(row->resident_tokens, row->prompt_tokens));
    if (row->state == RowState::kDecode) s.state = "decode";
    if (row->state == RowState::kPrefill && s.state == "waiting") s.state = "prefill";
  }
  return s;
}

EngineState EngineImpl::state() const {
  const Time now = std::chrono::steady_clock::now();
  const Lock lock(mutex_);
  EngineState s = totals_;
  s.model = options_.model;
  s.epoch = epoch_.get();
  s.ready = ready_ && !draining_;
  s.reason = s.ready ? "" : reason();
  s.ranks = group_->ranks();
  s.last_recovery = recovery_;
  if (!scheduler_) return s;
  for (const auto& [id, asked] : asked_) {
    s.requests.push_back(state_of(*asked, now));
    ++(s.requests.back().state == "waiting" ? s.requests_waiting : s.requests_running);
  }
  const SchedCounts counts = scheduler_->counts();
  s.kv_pages_used = counts.pages_used;
  s.kv_pages_total = counts.pages_total;
  s.kv_page_tokens = hello_.page_tokens;
  s.steps_total = counts.steps_total;
  for (RankState& rank : s.ranks) {
    rank.kv_pages_used = counts.pages_used;
    rank.kv_pages_total = counts.pages_total;
  }
  return s;
}

}  // namespace lariat
