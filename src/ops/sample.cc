// Draws a token: each step of the order in the header is one pass over the vocabulary or over what is left of
// it; thresholds come from a histogram and selection (nth_element), never from a sort.
#include "ops/sample.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "ops/cpu/sample_kernel.h"

namespace lariat {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

// The best logit; an error names what has no softmax.
Result<float> best_logit(std::span<const float> logits) {
  const cpu::LogitScan scan = cpu::scan_logits(logits);
  if (!scan.finite) {
    size_t i = 0;
    while (logits[i] <= std::numeric_limits<float>::max()) ++i;
    return make_error(Errc::kInternal, fmt::format("logit {} of {} is {}", i, logits.size(), logits[i]));
  }
  if (scan.best == kNegInf)
    return make_error(Errc::kInternal, fmt::format("all {} logits are -inf", logits.size()));
  return scan.best;
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

// log(sum exp(logits)).
double log_sum_exp(std::span<const float> logits, float best) {
  return static_cast<double>(best) + std::log(cpu::exp_weights(logits, best, 1.0f, nullptr));
}

// A token the model gives no chance at all: finite, so that it can stand in JSON.
constexpr float kLogprobMin = -9999.0f;

float logprob_at(float logit, double lse) {
  return std::clamp(static_cast<float>(static_cast<double>(logit) - lse), kLogprobMin, 0.0f);
}

std::vector<TokenLogprob> top_of(std::span<const float> logits, double lse, int32_t n) {
  const size_t count = std::min(static_cast<size_t>(std::max(n, 0)), logits.size());
  if (count == 0) return {};
  const auto better = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
  };
  std::vector<TokenLogprob> best;  // a heap of logits whose front is the worst of the best so far
  best.reserve(count + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (best.size() == count && !(logits[i] > best.front().logprob)) continue;  // a tie goes to the lower id
    best.push_back({static_cast<int32_t>(i), logits[i]});
    std::push_heap(best.begin(), best.end(), better);
    if (best.size() <= count) continue;
    std::pop_heap(best.begin(), best.end(), better);
    best.pop_back();
  }
  std::sort_heap(best.begin(), best.end(), better);
  for (TokenLogprob& t : best) t.logprob = logprob_at(t.logprob, lse);
  return best;
}

void apply_penalties(std::span<float> logits, const SampleParams& p) {
  for (const TokenCount& c : p.counts) {
    float& x = logits[static_cast<size_t>(c.id)];
    if (c.in_output > 0 || c.in_prompt) x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    if (c.in_output > 0) x -= p.frequency_penalty * static_cast<float>(c.in_output) + p.presence_penalty;
  }
  for (const auto& [id, bias] : p.logit_bias) {
    float& x = logits[static_cast<size_t>(id)];
    if (bias <= -kBiasCertain) {
      x = kNegInf;
    } else if (bias < kBiasCertain) {
      x += bias;
    }
  }
  for (const int32_t id : p.banned) logits[static_cast<size_t>(id)] = kNegInf;
  if (p.allowed.empty()) return;
  for (size_t i = 0; i < logits.size(); ++i)
    if ((p.allowed[i / 64] >> (i % 64) & 1) == 0) logits[i] = kNegInf;
}

// Leaves only the tokens that a bias forces, with what penalties made of their logits. One that is banned or
// masked is not forced; without any, all stay.
void keep_forced(std::span<float> logits, const SampleParams& p) {
  std::vector<std::pair<size_t, float>> forced;
  for (const auto& [id, bias] : p.logit_bias) {
    const auto i = static_cast<size_t>(id);
    if (bias >= kBiasCertain && logits[i] > kNegInf) forced.emplace_back(i, logits[i]);
  }
  if (forced.empty()) return;
  std::fill(logits.begin(), logits.end(), kNegInf);
  for (const auto& [i, logit] : forced) logits[i] = logit;
}

Error no_token_left(const SampleParams& p) {
  const bool asked = std::any_of(p.logit_bias.begin(), p.logit_bias.end(),
                                 [](const auto& b) { return b.second <= -kBiasCertain; });
  if (!asked) return make_error(Errc::kInternal, "bans and masks leave no token to choose from");
  return make_error(Errc::kInvalidArgument, "logit_bias: leaves no token to choose from", "logit_bias");
}

// A token that may be drawn; weight = exp((logit - best) / temperature), 1 for the best.
struct Candidate {
  int32_t id = 0;
  float weight = 0;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

// Keeps the `k` best, in id order. O(n).
void keep_top_k(std::vector<Candidate>& all, int32_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= all.size()) return;
  std::vector<Candidate> order = all;
  std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), better);
  const Candidate last = order[static_cast<size_t>(k - 1)];
  std::erase_if(all, [&](const Candidate& c) { return better(last, c); });
}

// Keeps the smallest set of the best that weighs at least `wanted`, in id order. O(n): halves the part that
// holds the last survivor until it is one.
void keep_weight(std::vector<Candidate>& all, double wanted) {
  std::vector<Candidate> order = all;
  auto lo = order.begin();
  auto hi = order.end();  // the last survivor is in [lo, hi), everything before lo survives
  double before = 0;      // weight of [begin, lo)
  while (hi - lo > 1) {
    const auto mid = lo + (hi - lo) / 2;
    std::nth_element(lo, mid, hi, better);
    double half = 0;
    for (auto it = lo; it != mid; ++it) half += static_cast<double>(it->weight);
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

double weight_of(const std::vector<Candidate>& all) {
  double total = 0;
  for (const Candidate& c : all) total += static_cast<double>(c.weight);
  return total;
}

// Weights sorted roughly, by exponent and three bits of mantissa: enough to say which tokens can survive.
class Histogram {
 public:
  explicit Histogram(std::span<const float> weights) {
    for (const float w : weights) {
      Bin& bin = bins_[index(w)];
      ++bin.count;
      bin.weight += static_cast<double>(w);
    }
  }
  static size_t index(float weight) { return std::bit_cast<uint32_t>(weight) >> 20; }
  // The highest bin down to which there are `count` tokens, and `weight` in weight.
  size_t down_to(int64_t count, double weight) const {
    int64_t n = 0;
    double sum = 0;
    for (size_t i = kBins; i-- > 1;) {
      n += bins_[i].count;
      sum += bins_[i].weight;
      if (n >= count && sum >= weight) return i;
    }
    return 0;
  }

 private:
  static constexpr size_t kBins = (0x3f800000u >> 20) + 1;  // weights are 0..1
  struct Bin {
    int64_t count = 0;
    double weight = 0;
  };
  std::array<Bin, kBins> bins_{};
};

// The candidates left by top_k, top_p and min_p, in id order. `total` is the sum of all weights.
std::vector<Candidate> truncate(std::span<const float> weights, double total, const SampleParams& p) {
  const bool top_p = p.top_p < 1.0f;
  const auto vocab = static_cast<int64_t>(weights.size());
  size_t lowest = 0;
  if (p.top_k > 0 && p.top_k < vocab) {
    lowest = Histogram(weights).down_to(p.top_k, 0);
  } else if (top_p) {
    lowest = Histogram(weights).down_to(1, static_cast<double>(p.top_p) * total);
  }
  std::vector<Candidate> all;
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i] > 0 && Histogram::index(weights[i]) >= lowest)
      all.push_back({static_cast<int32_t>(i), weights[i]});
  if (p.top_k > 0 && p.top_k < vocab) {
    keep_top_k(all, p.top_k);
    total = weight_of(all);
  }
  if (top_p) keep_weight(all, static_cast<double>(p.top_p) * total);
  // Relative to the best token, whose weight is 1; it always stays.
  const float least = std::min(1.0f, p.min_p);
  if (least > 0) std::erase_if(all, [&](const Candidate& c) { return c.weight < least; });
  return all;
}

// The first token, in id order, at which the running sum of weights exceeds `uniform` of the whole; should
// rounding keep the sum below that, the last one with a chance.
int32_t draw_token(std::span<float> logits, float best, const SampleParams& p) {
  const double uniform = philox_uniform(p.seed, p.output_index, p.choice);
  const double factor = std::min(1.0 / static_cast<double>(p.temperature),
                                 static_cast<double>(std::numeric_limits<float>::max()));
  const std::span<float> weights = logits;
  const double total = cpu::exp_weights(logits, best, static_cast<float>(factor), weights.data());
  double sum = 0;
  int32_t chosen = -1;
  if (p.top_k <= 0 && p.top_p >= 1.0f && p.min_p <= 0.0f) {
    const double target = uniform * total;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] <= 0) continue;
      sum += static_cast<double>(weights[i]);
      chosen = static_cast<int32_t>(i);
      if (sum > target) break;
    }
    return chosen;
  }
  const std::vector<Candidate> all = truncate(weights, total, p);
  const double target = uniform * weight_of(all);
  for (const Candidate& c : all) {
    sum += static_cast<double>(c.weight);
    chosen = c.id;
    if (sum > target) break;
  }
  return chosen;
}

}  // namespace

Result<SampleResult> sample(std::span<float> logits, const SampleParams& params) {
  LARIAT_ASSIGN(const float raw_best, best_logit(logits));
  LARIAT_RETURN_IF_ERROR(check_params(params, logits.size()));
  SampleResult result;
  double lse = 0;
  std::vector<float> raw;  // the chosen token's own logit is read after the draw has overwritten it
  if (params.top_logprobs >= 0) {
    lse = log_sum_exp(logits, raw_best);
    result.top = top_of(logits, lse, params.top_logprobs);
    raw.assign(logits.begin(), logits.end());
  }
  apply_penalties(logits, params);
  keep_forced(logits, params);
  const cpu::LogitScan scan = cpu::scan_logits(logits);
  if (!scan.finite)
    return make_error(
        Errc::kInvalidArgument,
        fmt::format("repetition_penalty {} or a bias makes a logit infinite", params.repetition_penalty));
  if (scan.best == kNegInf) return no_token_left(params);
  result.token =
      params.temperature == 0
          ? static_cast<int32_t>(std::find(logits.begin(), logits.end(), scan.best) - logits.begin())
          : draw_token(logits, scan.best, params);
  if (!raw.empty()) result.logprob = logprob_at(raw[static_cast<size_t>(result.token)], lse);
  return result;
}

Result<SampleResult> logprobs_of(std::span<const float> logits, int32_t token, int32_t top_logprobs) {
  LARIAT_ASSIGN(const float best, best_logit(logits));
  LARIAT_RETURN_IF_ERROR(check_id(token, logits.size(), "logprobs"));
  const double lse = log_sum_exp(logits, best);
  return SampleResult{token, logprob_at(logits[static_cast<size_t>(token)], lse),
                      top_of(logits, lse, top_logprobs)};
}

}  // namespace lariat
