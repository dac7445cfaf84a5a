// Draws a token: each step of the order in the header is one pass over the vocabulary or over what is left of
// it; thresholds come from selection (nth_element), never from a sort.
#include "ops/sample.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"

namespace lariat {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

struct Candidate {
  int32_t id = 0;
  float logit = 0;    // after penalties, bias and mask
  double weight = 0;  // exp((logit - best) / temperature)
};

bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

Status check_finite(std::span<const float> logits) {
  bool any = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    // NaN and +inf both fail this comparison; neither has a softmax.
    if (!(logits[i] <= std::numeric_limits<float>::max()))
      return make_error(Errc::kInternal, fmt::format("logit {} of {} is {}", i, logits.size(), logits[i]));
    any = any || logits[i] != kNegInf;
  }
  if (!any) return make_error(Errc::kInternal, fmt::format("all {} logits are -inf", logits.size()));
  return Ok{};
}

Status check_id(int32_t id, size_t vocab, const char* what) {
  if (id >= 0 && static_cast<size_t>(id) < vocab) return Ok{};
  return make_error(Errc::kInvalidArgument,
                    fmt::format("{}: token {} is outside the vocabulary of {}", what, id, vocab));
}

Status check_params(const SampleParams& p, size_t vocab) {
  for (const TokenCount& c : p.counts) LARIAT_RETURN_IF_ERROR(check_id(c.id, vocab, "counts"));
  for (const auto& [id, bias] : p.logit_bias) {
    LARIAT_RETURN_IF_ERROR(check_id(id, vocab, "logit_bias"));
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity())
      return make_error(Errc::kInvalidArgument, fmt::format("logit_bias of token {} is {}", id, bias));
  }
  for (const int32_t id : p.banned) LARIAT_RETURN_IF_ERROR(check_id(id, vocab, "banned"));
  if (!p.allowed.empty() && p.allowed.size() != (vocab + 63) / 64)
    return make_error(Errc::kInvalidArgument, fmt::format("allowed has {} words, a vocabulary of {} needs {}",
                                                          p.allowed.size(), vocab, (vocab + 63) / 64));
  if (!(p.temperature >= 0) || !(p.repetition_penalty > 0) || !std::isfinite(p.presence_penalty) ||
      !std::isfinite(p.frequency_penalty) || std::isnan(p.top_p) || std::isnan(p.min_p))
    return make_error(Errc::kInvalidArgument,
                      fmt::format("sampling: temperature {}, repetition_penalty {}, presence_penalty {}, "
                                  "frequency_penalty {}, top_p {}, min_p {}",
                                  p.temperature, p.repetition_penalty, p.presence_penalty,
                                  p.frequency_penalty, p.top_p, p.min_p));
  return Ok{};
}

// log(sum exp(logits)), in double.
double log_sum_exp(std::span<const float> logits) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - best);
  return best + std::log(sum);
}

// A token the model gives no chance at all: finite, so that it can stand in JSON.
constexpr float kLogprobMin = -9999.0f;

float logprob_at(float logit, double lse) {
  return std::clamp(static_cast<float>(static_cast<double>(logit) - lse), kLogprobMin, 0.0f);
}

std::vector<TokenLogprob> top_of(std::span<const float> logits, double lse, int32_t n) {
  const size_t count = std::min(static_cast<size_t>(std::max(n, 0)), logits.size());
  std::vector<Candidate> best;  // a heap whose front is the worst of the best so far
  if (count == 0) return {};
  best.reserve(count + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate c{static_cast<int32_t>(i), logits[i], 0};
    if (best.size() == count && !better(c, best.front())) continue;
    best.push_back(c);
    std::push_heap(best.begin(), best.end(), better);
    if (best.size() <= count) continue;
    std::pop_heap(best.begin(), best.end(), better);
    best.pop_back();
  }
  std::sort_heap(best.begin(), best.end(), better);
  std::vector<TokenLogprob> out;
  out.reserve(count);
  for (const Candidate& c : best) out.push_back({c.id, logprob_at(c.logit, lse)});
  return out;
}

void apply_penalties(std::span<float> logits, const SampleParams& p) {
  for (const TokenCount& c : p.counts) {
    float& x = logits[static_cast<size_t>(c.id)];
    if (c.in_output > 0 || c.in_prompt) x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    if (c.in_output > 0) x -= p.frequency_penalty * static_cast<float>(c.in_output) + p.presence_penalty;
  }
  for (const auto& [id, bias] : p.logit_bias) logits[static_cast<size_t>(id)] += bias;
  for (const int32_t id : p.banned) logits[static_cast<size_t>(id)] = kNegInf;
  if (p.allowed.empty()) return;
  for (size_t i = 0; i < logits.size(); ++i)
    if ((p.allowed[i / 64] >> (i % 64) & 1) == 0) logits[i] = kNegInf;
}

int32_t greedy(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Keeps the `k` best, in id order. O(n).
void keep_top_k(std::vector<Candidate>& all, int32_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= all.size()) return;
  std::vector<Candidate> order = all;
  std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), better);
  const Candidate last = order[static_cast<size_t>(k - 1)];
  std::erase_if(all, [&](const Candidate& c) { return better(last, c); });
}

// Keeps the smallest set of the best whose weight is at least top_p of the whole, in id order. O(n): halves
// the part that holds the last survivor until it is one.
void keep_top_p(std::vector<Candidate>& all, float top_p) {
  if (top_p >= 1.0f || all.size() <= 1) return;
  double total = 0;
  for (const Candidate& c : all) total += c.weight;
  const double wanted = static_cast<double>(top_p) * total;
  std::vector<Candidate> order = all;
  auto lo = order.begin();
  auto hi = order.end();  // the last survivor is in [lo, hi), everything before lo survives
  double before = 0;      // weight of [begin, lo)
  while (hi - lo > 1) {
    const auto mid = lo + (hi - lo) / 2;
    std::nth_element(lo, mid, hi, better);
    double half = 0;
    for (auto it = lo; it != mid; ++it) half += it->weight;
    if (before + half >= wanted) {
      hi = mid;
    } else {
      before += half;
      lo = mid;
    }
  }
  const Candidate last = *lo;
  std::erase_if(all, [&](const Candidate& c) { return better(last, c); });
}

int32_t draw(const std::vector<Candidate>& all, double uniform) {
  double total = 0;
  for (const Candidate& c : all) total += c.weight;
  const double target = uniform * total;
  double sum = 0;
  int32_t chosen = -1;
  for (const Candidate& c : all) {
    if (c.weight <= 0) continue;
    sum += c.weight;
    chosen = c.id;  // the last one with a chance, should rounding keep the sum below the target
    if (sum > target) break;
  }
  return chosen;
}

int32_t draw_token(std::span<const float> logits, const SampleParams& p) {
  const float best = *std::max_element(logits.begin(), logits.end());
  std::vector<Candidate> all;
  all.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] != kNegInf) all.push_back({static_cast<int32_t>(i), logits[i], 0});
  keep_top_k(all, p.top_k);
  const double inverse = 1.0 / static_cast<double>(p.temperature);
  for (Candidate& c : all)
    c.weight = std::exp((static_cast<double>(c.logit) - static_cast<double>(best)) * inverse);
  keep_top_p(all, p.top_p);
  if (p.min_p > 0) {
    // Relative to the best token, whose weight is 1; it always stays.
    const double least = std::min(1.0, static_cast<double>(p.min_p));
    std::erase_if(all, [&](const Candidate& c) { return c.weight < least; });
  }
  return draw(all, philox_uniform(p.seed, p.output_index, p.choice));
}

}  // namespace

Result<SampleResult> sample(std::span<float> logits, const SampleParams& params) {
  LARIAT_RETURN_IF_ERROR(check_finite(logits));
  LARIAT_RETURN_IF_ERROR(check_params(params, logits.size()));
  SampleResult result;
  double lse = 0;
  if (params.top_logprobs >= 0) {
    lse = log_sum_exp(logits);
    result.top = top_of(logits, lse, params.top_logprobs);
  }
  // The chosen token's raw logit is needed after the penalties have overwritten it; only these can change.
  std::vector<std::pair<int32_t, float>> raw;
  const auto keep_raw = [&](int32_t id) { raw.emplace_back(id, logits[static_cast<size_t>(id)]); };
  if (params.top_logprobs >= 0) {
    for (const TokenCount& c : params.counts) keep_raw(c.id);
    for (const auto& [id, bias] : params.logit_bias) keep_raw(id);
  }
  apply_penalties(logits, params);
  const int32_t top = greedy(logits);
  if (logits[static_cast<size_t>(top)] == kNegInf)
    return make_error(Errc::kInternal, "bans and masks leave no token to choose from");
  result.token = params.temperature == 0 ? top : draw_token(logits, params);
  if (params.top_logprobs >= 0) {
    float logit = logits[static_cast<size_t>(result.token)];
    for (const auto& [id, before] : raw) {
      if (id != result.token) continue;
      logit = before;
      break;
    }
    result.logprob = logprob_at(logit, lse);
  }
  return result;
}

Result<SampleResult> logprobs_of(std::span<const float> logits, int32_t token, int32_t top_logprobs) {
  LARIAT_RETURN_IF_ERROR(check_finite(logits));
  LARIAT_RETURN_IF_ERROR(check_id(token, logits.size(), "logprobs"));
  const double lse = log_sum_exp(logits);
  return SampleResult{token, logprob_at(logits[static_cast<size_t>(token)], lse),
                      top_of(logits, lse, top_logprobs)};
}

}  // namespace lariat
