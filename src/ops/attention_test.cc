// Attention, its K/V writer and the merge of partials against the double-precision oracle, on every compiled
// instruction set.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ops/attention_testing.h"
#include "ops/cpu/target_test.h"
#include "ops/ref/attention_ref.h"

namespace lariat {
namespace {

using kvtest::OwnedPartial;
using kvtest::PagedKv;
using kvtest::positions_from;
using kvtest::random_floats;
using kvtest::StripeRule;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class AttentionTest : public TargetTest {
 protected:
  std::unique_ptr<Stream> stream_ = Stream::cpu(2);
};
LARIAT_FOR_EACH_TARGET(AttentionTest);

// Both sides read the same stored K/V, so the tolerance covers f32 sums and exp only: weights within 2 ulp,
// scores of up to ~6 with 256 roundings each.
constexpr float kTolerance = 2e-5f;

void expect_near(const OwnedPartial& got, const OwnedPartial& want, const std::string& what) {
  double worst = 0;
  for (size_t i = 0; i < got.out.size(); ++i) {
    const double error = std::abs(static_cast<double>(got.out[i]) - static_cast<double>(want.out[i]));
    ASSERT_FALSE(std::isnan(error)) << what << " out " << i << " of " << got.out.size();
    worst = std::max(worst, error);
  }
  EXPECT_LE(worst, kTolerance) << what;
  for (size_t i = 0; i < got.lse.size(); ++i) {
    if (want.lse[i] == -kInf) {
      ASSERT_EQ(got.lse[i], -kInf) << what << " lse " << i;
    } else {
      ASSERT_NEAR(got.lse[i], want.lse[i], kTolerance) << what << " lse " << i;
    }
  }
}

void expect_same_bits(const OwnedPartial& a, const OwnedPartial& b, const std::string& what) {
  ASSERT_EQ(a.out.size(), b.out.size());
  for (size_t i = 0; i < a.out.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(a.out[i]), std::bit_cast<uint32_t>(b.out[i])) << what << " out " << i;
  for (size_t i = 0; i < a.lse.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(a.lse[i]), std::bit_cast<uint32_t>(b.lse[i])) << what << " lse " << i;
}

struct Case {
  KvLayout layout;
  int heads = 1;
  Mask mask;
  StripeRule rule = StripeRule::one();
  int32_t length = 1;  // positions of the whole sequence
  int64_t t = 1;       // the last t of them are queries
  std::string str() const {
    return fmt::format("{} heads {}/{} dims {}/{} page {} mask {} w {} period {} of {} length {} t {}",
                       dtype_name(layout.dtype), heads, layout.kv_heads, layout.k_dim, layout.v_dim,
                       layout.slots, static_cast<int>(mask.kind), mask.window, rule.period,
                       rule.offsets.size(), length, t);
  }
};

AttentionParams params_of(const Case& c) {
  return {c.heads, 1.0f / std::sqrt(static_cast<float>(c.layout.k_dim)), c.mask};
}

void check_against_ref(Stream& stream, const Case& c, std::mt19937& rng) {
  PagedKv kv(c.layout, std::max<int64_t>(c.rule.count_below(c.length), 1), rng);
  kv.write_random(stream, rng);
  const auto q = random_floats(rng, c.t * c.heads * c.layout.k_dim);
  const auto q_pos = positions_from(c.length - static_cast<int32_t>(c.t), c.t);
  OwnedPartial got(c.t, c.heads, c.layout.v_dim);
  OwnedPartial want = got;
  AttentionRow row{q.data(),  q_pos.data(), c.t, kv.pages(), c.rule.slots(), 0, c.rule.count_below(c.length),
                   got.view()};
  attention(stream, params_of(c), std::span(&row, 1));
  row.out = want.view();
  ref::attention(params_of(c), std::span(&row, 1));
  expect_near(got, want, c.str());
}

template <class T>
T pick(std::mt19937& rng, std::initializer_list<T> values) {
  return values.begin()[std::uniform_int_distribution<size_t>(0, values.size() - 1)(rng)];
}
int uniform(std::mt19937& rng, int lo, int hi) {
  return std::uniform_int_distribution<int>(lo, hi)(rng);
}

StripeRule random_rule(std::mt19937& rng) {
  const int stripes = uniform(rng, 1, 5);
  std::vector<int32_t> pattern;
  for (int s = 0; s < stripes; ++s) pattern.push_back(s);
  if (uniform(rng, 0, 3) == 0) pattern.push_back(uniform(rng, 0, stripes - 1));  // unequal shares
  return StripeRule::of(pattern, pick(rng, {1, 3, 16}), uniform(rng, 0, stripes - 1));
}

TEST_P(AttentionTest, EveryTypeSizeAndMask) {
  std::mt19937 rng(1);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int dim : {8, 16, 20, 32, 64, 80, 128, 256}) {
      for (const Mask mask :
           {Mask{MaskKind::kCausal, 0}, Mask{MaskKind::kWindow, 37}, Mask{MaskKind::kFull, 0}}) {
        for (const int slots : {1, 6, 16, 22, 64}) {
          const Case c{{dtype, 2, dim, dim, slots}, 6, mask, random_rule(rng), uniform(rng, 5, 150),
                       uniform(rng, 1, 5)};
          check_against_ref(*stream_, c, rng);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(AttentionTest, RandomShapes) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 rng(seed);
    Case c;
    const int kv_heads = uniform(rng, 1, 3);
    c.heads = kv_heads * pick(rng, {1, 2, 3, 4, 7, 8, 100});
    c.layout = {pick(rng, {DType::kF32, DType::kBF16, DType::kF16}), kv_heads, uniform(rng, 8, 96),
                uniform(rng, 8, 96), pick(rng, {1, 6, 16, 22, 64, 48})};
    c.mask = {pick(rng, {MaskKind::kCausal, MaskKind::kWindow, MaskKind::kFull}), uniform(rng, 1, 200)};
    c.rule = random_rule(rng);
    c.length = c.heads > 50 ? uniform(rng, 1, 80) : uniform(rng, 1, 400);
    c.t = uniform(rng, 1, std::min(c.length, c.heads > 50 ? 3 : 40));
    check_against_ref(*stream_, c, rng);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, ManySplits) {
  std::mt19937 rng(7);
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    const Case c{{dtype, 1, 16, 16, 64}, 3, {MaskKind::kCausal, 0}, StripeRule::one(), 5 * kKeySplit + 77, 2};
    check_against_ref(*stream_, c, rng);
  }
  const Case window{{DType::kBF16, 1, 16, 16, 22}, 2, {MaskKind::kWindow, 1500}, StripeRule::one(), 4000, 3};
  check_against_ref(*stream_, window, rng);
}

// T tokens at the end of a sequence, computed in chunks on a stream of some threads.
OwnedPartial in_chunks(Stream& stream, const Case& c, PagedKv& kv, const std::vector<float>& q,
                       int64_t chunk) {
  const auto q_pos = positions_from(c.length - static_cast<int32_t>(c.t), c.t);
  OwnedPartial got(c.t, c.heads, c.layout.v_dim);
  for (int64_t t = 0; t < c.t; t += chunk) {
    const int64_t n = std::min(chunk, c.t - t);
    // A chunk's last slot is that of its last position: what is written behind it is not there yet.
    const int64_t end =
        c.rule.count_below(c.length - static_cast<int32_t>(c.t) + static_cast<int32_t>(t + n));
    const AttentionRow row{q.data() + t * c.heads * c.layout.k_dim,
                           q_pos.data() + t,
                           n,
                           kv.pages(),
                           c.rule.slots(),
                           0,
                           end,
                           {got.out.data() + t * c.heads * c.layout.v_dim, got.lse.data() + t * c.heads}};
    attention(stream, params_of(c), std::span(&row, 1));
  }
  return got;
}

TEST_P(AttentionTest, BitsDoNotDependOnChunkThreadsOrPageSize) {
  const auto one = Stream::cpu(1);
  const auto three = Stream::cpu(3);
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 rng(seed);
    Case c;
    c.heads = pick(rng, {2, 3, 7});
    c.layout = {pick(rng, {DType::kF32, DType::kBF16, DType::kF16}), 1, 24, pick(rng, {24, 32}), 64};
    c.mask = {pick(rng, {MaskKind::kCausal, MaskKind::kWindow}), pick(rng, {50, 1100})};
    c.rule = random_rule(rng);
    c.length = pick(rng, {257, 1500, 2611});
    c.t = 257;
    const int64_t slots = std::max<int64_t>(c.rule.count_below(c.length), 1);
    const auto k = random_floats(rng, slots * c.layout.k_dim);
    const auto v = random_floats(rng, slots * c.layout.v_dim);
    const auto q = random_floats(rng, c.t * c.heads * c.layout.k_dim);
    std::vector<int64_t> all;
    for (int64_t i = 0; i < slots; ++i) all.push_back(i);
    std::vector<OwnedPartial> results;
    for (const int page : {64, 16, 22, 1}) {
      c.layout.slots = page;
      PagedKv kv(c.layout, slots, rng);
      kv.write_to(*one, k.data(), v.data(), all);
      for (const int64_t chunk : {c.t, int64_t{64}, int64_t{7}, int64_t{1}}) {
        for (Stream* stream : {one.get(), three.get()}) {
          if (page == 1 && chunk < 64) continue;
          results.push_back(in_chunks(*stream, c, kv, q, chunk));
          expect_same_bits(results.front(), results.back(),
                           fmt::format("{} chunk {} threads {}", c.str(), chunk, stream->threads()));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnTheBatch) {
  std::mt19937 rng(11);
  const AttentionParams params{6, 0.25f, {MaskKind::kCausal, 0}};
  const KvLayout layout{DType::kF32, 2, 32, 32, 32};
  const StripeRule rule = StripeRule::one();
  std::vector<PagedKv> kvs;
  std::vector<std::vector<float>> qs;
  std::vector<std::vector<int32_t>> q_pos;
  std::vector<int64_t> ts;
  std::vector<AttentionRow> rows;
  std::vector<OwnedPartial> together, alone;
  for (const auto& [length, t] :
       {std::pair{3000, 1}, {40, 40}, {1200, 200}, {1, 1}, {2500, 3}, {64, 0}, {700, 1}}) {
    kvs.emplace_back(layout, length, rng);
    kvs.back().write_random(*stream_, rng);
    qs.push_back(random_floats(rng, t * 6 * 32));
    q_pos.push_back(positions_from(length - t, t));
    ts.push_back(t);
    together.emplace_back(t, 6, 32);
    alone.emplace_back(t, 6, 32);
  }
  for (size_t i = 0; i < kvs.size(); ++i)
    rows.push_back({qs[i].data(), q_pos[i].data(), ts[i], kvs[i].pages(), rule.slots(), 0, kvs[i].slots(),
                    together[i].view()});
  attention(*stream_, params, rows);
  for (size_t i = 0; i < kvs.size(); ++i) {
    rows[i].out = alone[i].view();
    attention(*stream_, params, std::span(&rows[i], 1));
    expect_same_bits(together[i], alone[i], fmt::format("row {}", i));
  }
  attention(*stream_, params, {});
}

// Garbage in every slot no query sees: padding of the last block, pages behind the end, keys of the future
// and keys that have left the window.
TEST_P(AttentionTest, PoisonReachesNothing) {
  for (uint32_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 rng(seed);
    Case c;
    c.heads = pick(rng, {2, 6});
    c.layout = {pick(rng, {DType::kF32, DType::kBF16, DType::kF16}), 2, pick(rng, {16, 20}),
                pick(rng, {16, 20, 64}), pick(rng, {6, 16, 64})};
    c.mask = {pick(rng, {MaskKind::kCausal, MaskKind::kWindow}), 40};
    c.length = uniform(rng, 150, 300);
    c.t = 30;
    const int32_t first_query = c.length - 60;
    const auto k = random_floats(rng, int64_t{c.length} * 2 * c.layout.k_dim);
    const auto v = random_floats(rng, int64_t{c.length} * 2 * c.layout.v_dim);
    const auto q = random_floats(rng, c.t * c.heads * c.layout.k_dim);
    const auto q_pos = positions_from(first_query, c.t);
    std::vector<OwnedPartial> results;
    for (const float poison : {0.0f, kNan, kInf, -kInf, 1e30f}) {
      std::mt19937 same(seed);
      PagedKv kv(c.layout, c.length, same, poison);
      for (int32_t pos = 0; pos < c.length; ++pos) {
        const bool seen = c.mask.visible(first_query + static_cast<int32_t>(c.t) - 1, pos) ||
                          c.mask.visible(first_query, pos);
        const bool between = pos >= first_query && pos < first_query + c.t;
        if (seen || between)
          kv.write_to(*stream_, k.data() + int64_t{pos} * 2 * c.layout.k_dim,
                      v.data() + int64_t{pos} * 2 * c.layout.v_dim, {pos});
      }
      results.emplace_back(c.t, c.heads, c.layout.v_dim);
      const AttentionRow row{q.data(), q_pos.data(),         c.t, kv.pages(), c.rule.slots(), 0,
                             c.length, results.back().view()};
      attention(*stream_, params_of(c), std::span(&row, 1));
      expect_same_bits(results.front(), results.back(), fmt::format("{} poison {}", c.str(), poison));
      if (HasFatalFailure()) return;
    }
  }
}

// A NaN in a key that some queries of a tile see must reach those and no other.
TEST_P(AttentionTest, NanOfALaterKeyStaysThere) {
  std::mt19937 rng(5);
  const KvLayout layout{DType::kF32, 1, 16, 16, 64};
  const int64_t t = 50;
  for (const int64_t bad : {10, 17, 49}) {
    PagedKv kv(layout, t, rng, 0.0f);
    kv.write_random(*stream_, rng);
    const auto q = random_floats(rng, t * 2 * 16);
    const auto q_pos = positions_from(0, t);
    OwnedPartial clean(t, 2, 16), got(t, 2, 16);
    AttentionRow row{q.data(), q_pos.data(), t, kv.pages(), {}, 0, t, clean.view()};
    const AttentionParams params{2, 0.25f, {MaskKind::kCausal, 0}};
    attention(*stream_, params, std::span(&row, 1));
    const std::vector<float> nan(16, kNan);
    kv.write_to(*stream_, nan.data(), nan.data(), {bad});
    row.out = got.view();
    attention(*stream_, params, std::span(&row, 1));
    for (int64_t i = 0; i < t * 2; ++i) {
      const size_t at = static_cast<size_t>(i);
      if (i / 2 < bad) {
        ASSERT_EQ(std::memcmp(&got.out[at * 16], &clean.out[at * 16], 64), 0) << "query " << i / 2;
      } else {
        ASSERT_TRUE(std::isnan(got.out[at * 16]) && std::isnan(got.lse[at])) << "query " << i / 2;
      }
    }
  }
}

TEST_P(AttentionTest, NoVisibleKeyIsTheIdentity) {
  std::mt19937 rng(3);
  PagedKv kv({DType::kF32, 1, 16, 16, 16}, 20, rng);
  kv.write_random(*stream_, rng);
  const auto q = random_floats(rng, 3 * 16);
  const std::vector<int32_t> q_pos{0, 1, 2};
  const std::vector<int32_t> offsets{3};
  OwnedPartial got(3, 1, 16);
  AttentionRow row{q.data(), q_pos.data(), 3, kv.pages(), {4, offsets.data(), 1}, 0, 20, got.view()};
  attention(*stream_, {1, 1.0f, {MaskKind::kCausal, 0}}, std::span(&row, 1));
  for (const float x : got.out) EXPECT_EQ(x, 0.0f);
  for (const float x : got.lse) EXPECT_EQ(x, -kInf);
  row.slot_end = 0;
  got = OwnedPartial(3, 1, 16);
  row.out = got.view();
  attention(*stream_, {1, 1.0f, {MaskKind::kFull, 0}}, std::span(&row, 1));
  for (const float x : got.lse) EXPECT_EQ(x, -kInf);
}

TEST_P(AttentionTest, OneKeyGivesItsScoreAsLse) {
  std::mt19937 rng(9);
  PagedKv kv({DType::kF32, 1, 16, 16, 16}, 1, rng);
  kv.k.assign(16, 1.0f);
  kv.v = random_floats(rng, 16);
  kv.write_to(*stream_, kv.k.data(), kv.v.data(), {0});
  const std::vector<float> q(16, 3.0f);
  const int32_t pos = 0;
  OwnedPartial got(1, 1, 16);
  const AttentionRow row{q.data(), &pos, 1, kv.pages(), {}, 0, 1, got.view()};
  attention(*stream_, {1, 0.5f, {MaskKind::kCausal, 0}}, std::span(&row, 1));
  EXPECT_NEAR(got.lse[0], 24.0f, 4e-6f);
  EXPECT_EQ(got.out, kv.v);
}

// Parts over disjoint slot ranges (with a gap) folded by `accumulate`, against the oracle of the same slots.
TEST_P(AttentionTest, AccumulateFolds) {
  std::mt19937 rng(13);
  const int64_t slots = 3 * kKeySplit + 100;
  PagedKv kv({DType::kBF16, 1, 32, 32, 64}, slots, rng);
  kv.write_random(*stream_, rng);
  const int64_t t = 40;
  const auto q = random_floats(rng, t * 2 * 32);
  const auto q_pos = positions_from(static_cast<int32_t>(slots - t), t);
  OwnedPartial folded(t, 2, 32);
  const AttentionParams params{2, 0.2f, {MaskKind::kCausal, 0}};
  AttentionRow row{q.data(), q_pos.data(), t, kv.pages(), {}, 0, slots, folded.view()};
  for (const auto& [lo, hi] :
       {std::pair<int64_t, int64_t>{0, kKeySplit}, {kKeySplit, kKeySplit + 5}, {2 * kKeySplit, slots}}) {
    row.slot_begin = lo;
    row.slot_end = hi;
    row.accumulate = lo > 0;
    attention(*stream_, params, std::span(&row, 1));
  }
  row.accumulate = false;
  std::vector<AttentionRow> parts(2, row);
  OwnedPartial first(t, 2, 32), last(t, 2, 32);
  parts[0].slot_begin = 0, parts[0].slot_end = kKeySplit + 5, parts[0].out = first.view();
  parts[1].slot_begin = 2 * kKeySplit, parts[1].slot_end = slots, parts[1].out = last.view();
  ref::attention(params, parts);
  merge_partial(*stream_, first.view(), last.view(), t * 2, 32);
  expect_near(folded, first, "folded");
}

TEST(KvWrite, RoundsToNearestEvenAndSkipsNegativeSlots) {
  const auto stream = Stream::cpu(2);
  std::mt19937 rng(2);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const KvLayout layout{dtype, 2, 5, 7, 6};
    PagedKv kv(layout, 20, rng, 77.0f);
    const int64_t n = 40;
    const int64_t k_stride = 2 * 5 + 3;
    const int64_t v_stride = 2 * 7 + 1;
    const auto k = random_floats(rng, n * k_stride, 100.0f);
    const auto v = random_floats(rng, n * v_stride, 1e-6f);
    std::vector<int64_t> slots(n, -1);
    for (int64_t i = 0; i < 20; ++i) slots[static_cast<size_t>(2 * i)] = i == 3 ? -1 : i;
    const KvWriteArgs args{k.data(), v.data(), k_stride, v_stride, slots.data(), n, kv.pages()};
    kv_write(*stream, std::span(&args, 1));
    const auto stored = [&](float x) -> double {
      if (dtype == DType::kF32) return x;
      return dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(x)) : f16_to_f32(f32_to_f16(x));
    };
    for (int64_t s = 0; s < 20; ++s) {
      for (int h = 0; h < 2; ++h) {
        for (int d = 0; d < 5; ++d)
          ASSERT_EQ(ref::kv_element(kv.pages(), h, s, d, false),
                    s == 3 ? 77.0 : stored(k[static_cast<size_t>(2 * s * k_stride + h * 5 + d)]));
        for (int d = 0; d < 7; ++d)
          ASSERT_EQ(ref::kv_element(kv.pages(), h, s, d, true),
                    s == 3 ? 77.0 : stored(v[static_cast<size_t>(2 * s * v_stride + h * 7 + d)]));
      }
    }
  }
  // 1 + 2^-8 lies half way between two bf16 values: to the even one below; 1 + 3 * 2^-8 to the even one
  // above.
  PagedKv kv({DType::kBF16, 1, 2, 1, 16}, 1, rng);
  const float k[] = {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f};
  const float v[] = {kInf};
  kv.write_to(*stream, k, v, {0});
  EXPECT_EQ(ref::kv_element(kv.pages(), 0, 0, 0, false), 1.0);
  EXPECT_EQ(ref::kv_element(kv.pages(), 0, 0, 1, false), 1.0 + 0x1p-6);
  EXPECT_EQ(ref::kv_element(kv.pages(), 0, 0, 0, true), kInf);
}

struct Part {
  std::vector<float> out;
  float lse;
};
Part merged(Part a, const Part& b) {
  const auto stream = Stream::cpu(1);
  Part copy = b;
  merge_partial(*stream, {a.out.data(), &a.lse}, {copy.out.data(), &copy.lse}, 1,
                static_cast<int>(a.out.size()));
  return a;
}

TEST(MergePartial, PublicCases) {  // C19
  const Part one{{1, 2}, 0.5f};
  const Part empty{{0, 0}, -kInf};
  for (const Part& m : {merged(one, empty), merged(empty, one), merged(merged(empty, empty), one)}) {
    EXPECT_EQ(m.out, one.out);
    EXPECT_EQ(m.lse, 0.5f);
  }
  const Part none = merged(empty, empty);
  EXPECT_EQ(none.out, empty.out);
  EXPECT_EQ(none.lse, -kInf);
  const Part mixed = merged({{0}, std::log(1.0f)}, {{4}, std::log(3.0f)});
  EXPECT_NEAR(mixed.out[0], 3.0f, 1e-6f);
  EXPECT_NEAR(mixed.lse, 1.386294361f, 1e-6f);
  const Part high = merged({{1}, 1000}, {{0}, 999});
  EXPECT_NEAR(high.out[0], 0.731058579f, 1e-6f);
  EXPECT_NEAR(high.lse, 1000.313261688f, 3.1e-5f);  // half an ulp of f32 at 1000
  const Part low = merged({{1}, -1000}, {{0}, -1001});
  EXPECT_NEAR(low.out[0], 0.731058579f, 1e-6f);
  EXPECT_NEAR(low.lse, -999.686738312f, 3.1e-5f);
}

TEST(MergePartial, AnyOrderAndGrouping) {
  std::mt19937 rng(19);
  for (int round = 0; round < 50; ++round) {
    std::vector<Part> parts;
    std::vector<ref::PartialData> exact;
    for (int i = 0; i < 5; ++i) {
      parts.push_back({random_floats(rng, 3), random_floats(rng, 1, 3.0f)[0]});
      exact.push_back({{parts.back().out.begin(), parts.back().out.end()}, {parts.back().lse}});
    }
    const ref::PartialData want = ref::merge(exact, 3);
    for (int order = 0; order < 5; ++order) {
      std::shuffle(parts.begin(), parts.end(), rng);
      const Part left = merged(merged(merged(merged(parts[0], parts[1]), parts[2]), parts[3]), parts[4]);
      const Part tree = merged(merged(parts[0], parts[1]), merged(parts[2], merged(parts[3], parts[4])));
      for (const Part& m : {left, tree}) {
        for (size_t d = 0; d < 3; ++d) EXPECT_NEAR(m.out[d], want.out[d], 1e-6);
        EXPECT_NEAR(m.lse, want.lse[0], 1e-6);
      }
    }
  }
}

TEST(MergePartialDeathTest, PositiveInfinityIsABug) {
  EXPECT_DEATH(merged({{1}, kInf}, {{0}, 0}), "lse of \\+inf");
}

TEST(AttentionWorkspace, BoundsWhatACallTakes) {
  std::mt19937 rng(21);
  for (const int threads : {1, 2}) {
    for (const int64_t t : {1, 300}) {
      const auto stream = Stream::cpu(threads);
      PagedKv kv({DType::kF16, 3, 64, 64, 64}, 9000, rng);
      kv.write_random(*stream, rng);
      const auto q = random_floats(rng, t * 9 * 64);
      const auto q_pos = positions_from(static_cast<int32_t>(9000 - t), t);
      OwnedPartial got(t, 9, 64);
      const AttentionRow row{q.data(), q_pos.data(), t, kv.pages(), {}, 0, 9000, got.view()};
      attention(*stream, {9, 0.125f, {MaskKind::kCausal, 0}}, std::span(&row, 1));
      EXPECT_LE(static_cast<int64_t>(stream->scratch_bytes()),
                attention_workspace_bytes(threads, 9, 3, 64, 64));
    }
  }
}

}  // namespace
}  // namespace lariat
