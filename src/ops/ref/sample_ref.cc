#include "ops/ref/sample_ref.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lariat::ref {
namespace {

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

std::vector<double> softmax(const std::vector<double>& x) {
  const double best = *std::max_element(x.begin(), x.end());
  std::vector<double> p(x.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += p[i] = std::exp(x[i] - best);
  for (double& v : p) v /= sum;
  return p;
}

}  // namespace

std::vector<double> sampling_distribution(std::span<const float> logits, const SampleParams& params) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const TokenCount& c : params.counts) {
    double& v = x[static_cast<size_t>(c.id)];
    if (c.in_output > 0 || c.in_prompt)
      v = v > 0 ? v / static_cast<double>(params.repetition_penalty)
                : v * static_cast<double>(params.repetition_penalty);
    if (c.in_output > 0)
      v -= static_cast<double>(params.frequency_penalty) * c.in_output +
           static_cast<double>(params.presence_penalty);
  }
  for (const auto& [id, bias] : params.logit_bias) x[static_cast<size_t>(id)] += static_cast<double>(bias);
  for (const int32_t id : params.banned) x[static_cast<size_t>(id)] = kNegInf;
  for (size_t i = 0; !params.allowed.empty() && i < x.size(); ++i)
    if ((params.allowed[i / 64] >> (i % 64) & 1) == 0) x[i] = kNegInf;
  std::vector<bool> forced(x.size());
  for (const auto& [id, bias] : params.logit_bias) {
    const auto i = static_cast<size_t>(id);
    if (bias <= -100) x[i] = kNegInf;
    forced[i] = bias >= 100 && x[i] > kNegInf;
  }
  if (std::find(forced.begin(), forced.end(), true) != forced.end())
    for (size_t i = 0; i < x.size(); ++i)
      if (!forced[i]) x[i] = kNegInf;
  for (double& v : x) v /= static_cast<double>(params.temperature);

  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  if (params.top_k > 0)
    for (size_t i = static_cast<size_t>(params.top_k); i < order.size(); ++i) x[order[i]] = kNegInf;
  std::vector<double> p = softmax(x);
  double cumulative = 0;
  for (const size_t id : order) {
    if (cumulative >= static_cast<double>(params.top_p) && cumulative > 0) p[id] = 0;
    cumulative += p[id];
  }
  const double best = p[order[0]];
  for (double& v : p)
    if (v < static_cast<double>(params.min_p) * best) v = 0;
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= sum;
  return p;
}

int32_t pick(std::span<const double> probabilities, double u) {
  double sum = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    sum += probabilities[i];
    if (sum > u) return static_cast<int32_t>(i);
  }
  return -1;
}

std::vector<double> log_softmax(std::span<const float> logits) {
  std::vector<double> p = softmax({logits.begin(), logits.end()});
  for (double& v : p) v = std::log(v);
  return p;
}

}  // namespace lariat::ref
