#include "ops/ref/attention_ref.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace lariat::ref {
namespace {

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

double element(const std::byte* page, DType dtype, int64_t index) {
  const std::byte* at = page + index * static_cast<int64_t>(dtype_size(dtype));
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, at, sizeof x);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

// One query of one head: appends to (out, lse) of a single part.
PartialData one_query(const AttentionParams& params, const AttentionRow& row, int64_t t, int head) {
  const KvLayout& layout = row.kv.layout;
  const int kv_head = head / (params.heads / layout.kv_heads);
  const int64_t q_stride = row.q_stride != 0 ? row.q_stride : int64_t{params.heads} * layout.k_dim;
  const float* q = row.q + t * q_stride + int64_t{head} * layout.k_dim;
  std::vector<int64_t> slots;
  std::vector<double> scores;
  double top = kNegInf;
  for (int64_t s = row.slot_begin; s < row.slot_end; ++s) {
    if (!params.mask.visible(row.q_pos[t], row.positions.at(s))) continue;
    double dot = 0;
    for (int d = 0; d < layout.k_dim; ++d)
      dot += static_cast<double>(q[d]) * kv_element(row.kv, kv_head, s, d, false);
    slots.push_back(s);
    scores.push_back(dot * static_cast<double>(params.scale));
    top = std::max(top, scores.back());
  }
  PartialData part{std::vector<double>(static_cast<size_t>(layout.v_dim), 0.0), {kNegInf}};
  if (slots.empty()) return part;
  double sum = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const double w = std::exp(scores[i] - top);
    sum += w;
    for (int d = 0; d < layout.v_dim; ++d)
      part.out[static_cast<size_t>(d)] += w * kv_element(row.kv, kv_head, slots[i], d, true);
  }
  for (double& x : part.out) x /= sum;
  part.lse[0] = top + std::log(sum);
  return part;
}

}  // namespace

double kv_element(const KvPages& kv, int head, int64_t slot, int dim, bool value) {
  const int64_t page = slot / kv.layout.slots;
  LARIAT_CHECK(page < kv.pages_count, "slot {} of {} pages", slot, kv.pages_count);
  const int in_page = static_cast<int>(slot % kv.layout.slots);
  const int block = in_page / kKvBlock;
  const int lane = in_page % kKvBlock;
  const int64_t index = value ? kv.layout.v_offset(head, block) + int64_t{lane} * kv.layout.v_dim + dim
                              : kv.layout.k_offset(head, block) + int64_t{dim} * kKvBlock + lane;
  return element(kv.base + kv.pages[page].get() * kv.page_stride, kv.layout.dtype, index);
}

void attention(const AttentionParams& params, std::span<const AttentionRow> rows) {
  for (const AttentionRow& row : rows) {
    const int v_dim = row.kv.layout.v_dim;
    for (int64_t t = 0; t < row.t; ++t) {
      for (int h = 0; h < params.heads; ++h) {
        const int64_t at = t * params.heads + h;
        PartialData part = one_query(params, row, t, h);
        if (row.accumulate) {
          PartialData before{std::vector<double>(row.out.out + at * v_dim, row.out.out + (at + 1) * v_dim),
                             {row.out.lse[at]}};
          const PartialData parts[] = {before, part};
          part = merge(parts, v_dim);
        }
        for (int d = 0; d < v_dim; ++d)
          row.out.out[at * v_dim + d] = static_cast<float>(part.out[static_cast<size_t>(d)]);
        if (row.out.lse) row.out.lse[at] = static_cast<float>(part.lse[0]);
      }
    }
  }
}

PartialData merge(std::span<const PartialData> parts, int v_dim) {
  PartialData result = parts[0];
  for (size_t r = 0; r < result.lse.size(); ++r) {
    double top = kNegInf;
    for (const PartialData& p : parts) top = std::max(top, p.lse[r]);
    double sum = 0;
    std::vector<double> out(static_cast<size_t>(v_dim), 0.0);
    for (const PartialData& p : parts) {
      if (p.lse[r] == kNegInf) continue;
      const double w = std::exp(p.lse[r] - top);
      sum += w;
      for (size_t d = 0; d < out.size(); ++d) out[d] += w * p.out[r * out.size() + d];
    }
    for (size_t d = 0; d < out.size(); ++d) result.out[r * out.size() + d] = sum > 0 ? out[d] / sum : 0.0;
    result.lse[r] = sum > 0 ? top + std::log(sum) : kNegInf;
  }
  return result;
}

}  // namespace lariat::ref
