// Paged K/V filled with random tokens, for tests and benches of attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ops/attention.h"

namespace lariat::kvtest {

// Positions that one stripe holds, found by asking every position: owner = pattern[(pos / interleave) % n].
struct StripeRule {
  std::vector<int32_t> offsets;
  int32_t period = 1;

  static StripeRule one() { return {{0}, 1}; }
  static StripeRule of(const std::vector<int32_t>& pattern, int32_t interleave, int32_t stripe) {
    StripeRule rule;
    rule.period = interleave * static_cast<int32_t>(pattern.size());
    for (int32_t pos = 0; pos < rule.period; ++pos)
      if (pattern[static_cast<size_t>(pos / interleave) % pattern.size()] == stripe)
        rule.offsets.push_back(pos);
    return rule;
  }
  SlotPositions slots() const { return {period, offsets.data(), static_cast<int32_t>(offsets.size())}; }
  int64_t count_below(int32_t length) const {
    int64_t n = 0;
    while (slots().at(n) < length) ++n;
    return n;
  }
};

inline std::vector<float> random_floats(std::mt19937& rng, int64_t n, float spread = 1.0f) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = normal(rng);
  return out;
}

// K/V of one sequence in a pool of its own, page ids shuffled; every unwritten byte is `poison`.
class PagedKv {
 public:
  PagedKv(const KvLayout& layout, int64_t slots, std::mt19937& rng,
          float poison = std::numeric_limits<float>::quiet_NaN())
      : layout_(layout), slots_(slots) {
    const int64_t pages = (slots + layout.slots - 1) / layout.slots;
    const int64_t pool_pages = pages + 3;
    std::vector<int32_t> ids(static_cast<size_t>(pool_pages));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), rng);
    for (int64_t i = 0; i < pages; ++i) table_.emplace_back(ids[static_cast<size_t>(i)]);
    pool_ = Buffer::allocate(static_cast<size_t>(pool_pages * layout.page_bytes())).value();
    fill(poison);
  }

  KvPages pages() {
    return {layout_, pool_.data(), layout_.page_bytes(), table_.data(), static_cast<int64_t>(table_.size())};
  }
  int64_t slots() const { return slots_; }

  void fill(float value) {
    if (layout_.dtype == DType::kF32) {
      fill_as(value);
    } else {
      fill_as(layout_.dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value));
    }
  }
  // k [n, kv_heads, k_dim], v [n, kv_heads, v_dim].
  void write_to(Stream& stream, const float* k_rows, const float* v_rows, const std::vector<int64_t>& slots) {
    const KvWriteArgs args{k_rows,
                           v_rows,
                           int64_t{layout_.kv_heads} * layout_.k_dim,
                           int64_t{layout_.kv_heads} * layout_.v_dim,
                           slots.data(),
                           static_cast<int64_t>(slots.size()),
                           pages()};
    kv_write(stream, std::span(&args, 1));
  }
  void write_random(Stream& stream, std::mt19937& rng) {
    k = random_floats(rng, slots_ * layout_.kv_heads * layout_.k_dim);
    v = random_floats(rng, slots_ * layout_.kv_heads * layout_.v_dim);
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < slots_; ++i) slots.push_back(i);
    write_to(stream, k.data(), v.data(), slots);
  }

  std::vector<float> k;
  std::vector<float> v;

 private:
  template <class T>
  void fill_as(T value) {
    for (size_t i = 0; i < pool_.size() / sizeof(T); ++i)
      std::memcpy(pool_.data() + i * sizeof(T), &value, sizeof(T));
  }

  KvLayout layout_;
  int64_t slots_;
  std::vector<PageId> table_;
  Buffer pool_;
};

// Results of a call on t tokens.
struct OwnedPartial {
  OwnedPartial(int64_t t, int heads, int v_dim)
      : out(static_cast<size_t>(t * heads * v_dim), 12345.0f),
        lse(static_cast<size_t>(t * heads), 12345.0f) {}
  PartialView view() { return {out.data(), lse.data()}; }
  std::vector<float> out;
  std::vector<float> lse;
};

inline std::vector<int32_t> positions_from(int32_t first, int64_t n) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(first + static_cast<int32_t>(i));
  return out;
}

}  // namespace lariat::kvtest
