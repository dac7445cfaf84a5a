#include "worker/testing/toy_executor.h"

#include <algorithm>
#include <thread>

namespace lariat {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15 + b + 0x632BE59BD9B4E019;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9;
  return x ^ (x >> 32);
}

constexpr uint64_t kEmpty = 0x1234;

uint64_t after(uint64_t state, int32_t token, int32_t pos) {
  return mix(mix(state, static_cast<uint64_t>(pos)), static_cast<uint64_t>(token));
}

int32_t draw(uint64_t state, const PlanSampling& s, int32_t vocab) {
  uint64_t h = state;
  if (s.temperature > 0) h = mix(mix(h, s.seed), (uint64_t{s.choice} << 32) + s.output_index);
  for (;;) {
    const auto token = static_cast<int32_t>(h % static_cast<uint64_t>(vocab));
    if (std::find(s.banned.begin(), s.banned.end(), token) == s.banned.end()) return token;
    h = mix(h, 1);
  }
}

PositionLogprobs logprobs(uint64_t state, int32_t token, int32_t top) {
  PositionLogprobs p;
  p.logprob = -static_cast<float>(mix(state, static_cast<uint64_t>(token)) % 1000) * 0.01f;
  for (int32_t i = 0; i < top; ++i) p.top.push_back({i, -0.5f * static_cast<float>(i)});
  return p;
}

}  // namespace

ToyExecutor::ToyExecutor(ToyOptions options)
    : options_(std::move(options)),
      slots_(static_cast<size_t>(options_.page_tokens) * static_cast<size_t>(options_.pages_total)) {}

Hello ToyExecutor::hello() const {
  Hello h;
  h.kv_type = "f32";
  h.device = "toy";
  h.page_tokens = options_.page_tokens;
  h.pages_total = options_.pages_total;
  h.vocab = options_.vocab;
  return h;
}

ToyExecutor::Slot* ToyExecutor::slot(const PlanRow& row, int32_t pos) {
  const auto index = static_cast<size_t>(pos / options_.page_tokens);
  if (row.pages.size() != 1 || index >= row.pages[0].size()) return nullptr;
  const int32_t page = row.pages[0][index].get();
  if (page < 0 || page >= options_.pages_total) return nullptr;
  return &slots_[static_cast<size_t>(page) * static_cast<size_t>(options_.page_tokens) +
                 static_cast<size_t>(pos % options_.page_tokens)];
}

RowOutcome ToyExecutor::run_row(const PlanRow& row, const ProgressFn& progress, bool& aborted) {
  RowOutcome out;
  out.id = row.id;
  const auto fail = [&](std::string message) {
    out.failed = true;
    out.message = std::move(message);
    return out;
  };
  std::vector<int32_t> tokens = row.tokens;
  if (row.use_prev) {
    if (!prev_.contains(row.id)) return fail("no token was drawn for this row before");
    tokens = {prev_[row.id]};
  }
  if (static_cast<int32_t>(tokens.size()) != row.n || row.n < 1) return fail("n tokens were promised");
  uint64_t state = kEmpty;
  for (int32_t pos = 0; pos < row.pos0 + row.n; ++pos) {
    Slot* s = slot(row, pos);
    if (s == nullptr) return fail(fmt::format("position {} has no page", pos));
    if (pos >= row.pos0) {
      if (options_.per_token.count() > 0) std::this_thread::sleep_for(options_.per_token);
      if (!progress()) {
        aborted = true;
        return out;
      }
      s->token = tokens[static_cast<size_t>(pos - row.pos0)];
      s->state = after(state, s->token, pos);
    } else if (s->state != after(state, s->token, pos)) {
      return fail(fmt::format("position {} holds something else's K and V", pos));
    }
    state = s->state;
    if (pos >= row.pos0 && row.prompt_logprobs >= 0) {
      const size_t next = static_cast<size_t>(pos - row.pos0) + 1;
      out.prompt.push_back(
          logprobs(state, next < tokens.size() ? tokens[next] : row.next_token, row.prompt_logprobs));
    }
  }
  if (row.sample) {
    out.token = draw(state, row.sampling, options_.vocab);
    prev_[row.id] = out.token;
    if (row.sampling.top_logprobs >= 0)
      out.token_logprobs = logprobs(state, out.token, row.sampling.top_logprobs);
  }
  return out;
}

Result<StepOutcome> ToyExecutor::run(const StepPlan& plan, const ProgressFn& progress) {
  for (const RowId id : plan.forget) prev_.erase(id);
  if (options_.before_step) options_.before_step(plan);
  StepOutcome outcome;
  outcome.epoch = plan.epoch;
  outcome.step = plan.step;
  for (const PlanRow& row : plan.rows) {
    bool aborted = false;
    outcome.rows.push_back(run_row(row, progress, aborted));
    if (aborted) return make_error(Errc::kCancelled, "the step was aborted");
  }
  return outcome;
}

std::vector<int32_t> ToyExecutor::generate(const std::vector<int32_t>& prompt, int32_t vocab,
                                           int32_t max_tokens, const PlanSampling& sampling,
                                           const std::vector<int32_t>& end_ids) {
  uint64_t state = kEmpty;
  int32_t pos = 0;
  for (const int32_t token : prompt) state = after(state, token, pos++);
  std::vector<int32_t> out;
  PlanSampling s = sampling;
  while (static_cast<int32_t>(out.size()) < max_tokens) {
    s.output_index = out.size();
    out.push_back(draw(state, s, vocab));
    if (std::find(end_ids.begin(), end_ids.end(), out.back()) != end_ids.end()) break;
    state = after(state, out.back(), pos++);
  }
  return out;
}

ExecutorFactory toy_factory(const ToyOptions& options) {
  return [options](const LoadProgressFn&) -> Result<std::unique_ptr<StepExecutor>> {
    return std::unique_ptr<StepExecutor>(std::make_unique<ToyExecutor>(options));
  };
}

}  // namespace lariat
