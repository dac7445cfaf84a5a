// The layer call on one rank: steps of prefill and decode against the oracle over the whole sequence.
#include "attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "attention/partial.h"
#include "ops/attention_testing.h"
#include "ops/ref/attention_ref.h"

namespace lariat {
namespace {

using kvtest::OwnedPartial;
using kvtest::random_floats;

Placement one_stripe() {
  auto placement = Placement::equal(1, 1);
  EXPECT_TRUE(placement.ok());
  return *placement;
}

constexpr int kHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kDim = 16;

struct Sequence {
  int32_t length = 0;
  std::vector<float> q, k, v;
  std::vector<std::vector<PageId>> pages;
};

class LocalAttentionTest : public ::testing::Test {
 protected:
  void make(DType dtype, int page, int64_t pages_total) {
    for (int g = 0; g < 2; ++g) {
      auto store = KvStore::create({2, {dtype, kKvHeads, kDim, kDim, page}, pages_total});
      ASSERT_TRUE(store.ok()) << store.error().message;
      stores_.push_back(std::make_unique<KvStore>(std::move(store).value()));
      stores_.back()->poison();
    }
    AttentionConfig config{stream_.get(), kHeads,         0.25f, {stores_[0].get(), stores_[1].get()}, {},
                           one_stripe(),  StripeIndex(0), {}};
    // Layers alternate between a full and a window group.
    for (int l = 0; l < 4; ++l)
      config.layers.push_back({l % 2, LayerId(l / 2), l % 2 == 0 ? Mask{} : Mask{MaskKind::kWindow, 9}});
    masks_ = {Mask{}, Mask{MaskKind::kWindow, 9}};
    auto backend = create_attention(config);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    backend_ = std::move(backend).value();
  }

  Sequence sequence(int32_t length, int page) {
    Sequence s;
    s.length = length;
    s.q = random_floats(rng_, int64_t{length} * kHeads * kDim);
    s.k = random_floats(rng_, int64_t{length} * kKvHeads * kDim);
    s.v = random_floats(rng_, int64_t{length} * kKvHeads * kDim);
    s.pages.resize(2);
    for (auto& table : s.pages)
      for (int32_t at = 0; at < length; at += page) table.emplace_back(next_page_++);
    return s;
  }

  // What the oracle says for the whole sequence, from a pool of its own.
  std::vector<float> expected(const Sequence& s, DType dtype, const Mask& mask) {
    kvtest::PagedKv kv({dtype, kKvHeads, kDim, kDim, 16}, s.length, rng_);
    std::vector<int64_t> slots(static_cast<size_t>(s.length));
    std::iota(slots.begin(), slots.end(), 0);
    kv.write_to(*stream_, s.k.data(), s.v.data(), slots);
    const auto q_pos = kvtest::positions_from(0, s.length);
    OwnedPartial want(s.length, kHeads, kDim);
    const AttentionRow row{s.q.data(), q_pos.data(), s.length, kv.pages(), {}, 0, s.length, want.view()};
    ref::attention({kHeads, 0.25f, mask}, std::span(&row, 1));
    return want.out;
  }

  std::mt19937 rng_{1};
  std::unique_ptr<Stream> stream_ = Stream::cpu(2);
  std::vector<std::unique_ptr<KvStore>> stores_;
  std::vector<Mask> masks_;
  std::unique_ptr<AttentionBackend> backend_;
  int32_t next_page_ = 0;
};

// Two sequences in lockstep, one in chunks of 7, one in chunks of 13, fused q/k/v rows at a stride.
TEST_F(LocalAttentionTest, StepsOfSeveralRowsAndLayers) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    stores_.clear();
    next_page_ = 0;
    make(dtype, 8, 64);
    const Sequence seqs[] = {sequence(60, 8), sequence(41, 8)};
    const int32_t chunks[] = {7, 13};
    constexpr int64_t kStride = (kHeads + 2 * kKvHeads) * kDim;
    std::vector<std::vector<std::vector<float>>> results(4);
    for (auto& layer : results)
      for (const Sequence& s : seqs) layer.emplace_back(s.q.size());
    int32_t done[] = {0, 0};
    while (done[0] < seqs[0].length || done[1] < seqs[1].length) {
      std::vector<StepRow> rows;
      std::vector<std::vector<int32_t>> positions;
      std::vector<float> fused;
      std::vector<size_t> which;
      for (size_t i = 0; i < 2; ++i) {
        const int32_t n = std::min(chunks[i], seqs[i].length - done[i]);
        if (n == 0) continue;
        positions.push_back(kvtest::positions_from(done[i], n));
        which.push_back(i);
        const int64_t first = static_cast<int64_t>(fused.size()) / kStride;
        for (int64_t t = done[i]; t < done[i] + n; ++t) {
          const auto add = [&](const std::vector<float>& from, int64_t width) {
            fused.insert(fused.end(), from.begin() + t * width, from.begin() + (t + 1) * width);
          };
          add(seqs[i].q, kHeads * kDim);
          add(seqs[i].k, kKvHeads * kDim);
          add(seqs[i].v, kKvHeads * kDim);
        }
        rows.push_back({first, n, nullptr, done[i] + n, seqs[i].pages, RowStrategy::kLocal, done[i]});
      }
      for (size_t r = 0; r < rows.size(); ++r) rows[r].positions = positions[r].data();
      ASSERT_TRUE(backend_->begin_step(rows).ok());
      std::vector<float> out(fused.size() / kStride * kHeads * kDim);
      for (int layer = 0; layer < 4; ++layer) {
        const LayerInputs in{fused.data(),
                             kStride,
                             fused.data() + kHeads * kDim,
                             kStride,
                             fused.data() + (kHeads + kKvHeads) * kDim,
                             kStride};
        ASSERT_TRUE(backend_->layer(LayerId(layer), in, out.data()).ok());
        for (size_t r = 0; r < rows.size(); ++r)
          std::copy_n(out.begin() + rows[r].first * kHeads * kDim, rows[r].n * kHeads * kDim,
                      results[static_cast<size_t>(layer)][which[r]].begin() + done[which[r]] * kHeads * kDim);
      }
      for (size_t r = 0; r < rows.size(); ++r) done[which[r]] += static_cast<int32_t>(rows[r].n);
    }
    for (size_t layer = 0; layer < 4; ++layer) {
      for (size_t i = 0; i < 2; ++i) {
        const auto want = expected(seqs[i], dtype, masks_[layer % 2]);
        for (size_t at = 0; at < want.size(); ++at)
          ASSERT_NEAR(results[layer][i][at], want[at], 1e-5)
              << "layer " << layer << " sequence " << i << " at " << at;
      }
    }
  }
}

TEST_F(LocalAttentionTest, RefusesRowsThatCannotBe) {
  make(DType::kF32, 8, 4);
  const auto attempt = [&](std::vector<int32_t> positions, int64_t length,
                           std::vector<std::vector<PageId>> pages) {
    const StepRow row{
        0, static_cast<int64_t>(positions.size()), positions.data(), length, pages, RowStrategy::kLocal, 0};
    const Status status = backend_->begin_step(std::span(&row, 1));
    return status.ok() ? std::string() : status.error().message;
  };
  const std::vector<PageId> one{PageId(0)}, two{PageId(0), PageId(3)}, outside{PageId(0), PageId(4)};
  EXPECT_EQ(attempt({0, 1}, 2, {one, one}), "");
  EXPECT_EQ(attempt({8}, 9, {two, two}), "");
  EXPECT_NE(attempt({8}, 9, {two, one}), "");
  EXPECT_NE(attempt({8}, 9, {two, outside}), "");
  EXPECT_NE(attempt({8}, 9, {two}), "");
  EXPECT_NE(attempt({3, 3}, 4, {one, one}), "");
  EXPECT_NE(attempt({3, 4}, 4, {one, one}), "");
}

TEST(CreateAttention, RefusesWhatDoesNotFit) {
  const auto stream = Stream::cpu(1);
  auto store = KvStore::create({1, {DType::kF32, 2, 16, 16, 16}, 4});
  ASSERT_TRUE(store.ok());
  auto three = Placement::equal(3, 1);
  ASSERT_TRUE(three.ok());
  AttentionConfig config{stream.get(), 4, 1.0f, {&*store}, {{0, LayerId(0), {}}}, *three, StripeIndex(0), {}};
  auto result = create_attention(config);  // three stripes, and no ring
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kInvalidArgument);
  EXPECT_NE(result.error().message.find("3 stripes"), std::string::npos);
  config.stripe = StripeIndex(3);
  EXPECT_EQ(create_attention(config).error().code, Errc::kInvalidArgument);
  config.stripe = StripeIndex(0);
  config.placement = one_stripe();
  EXPECT_TRUE(create_attention(config).ok());
  config.heads = 3;
  EXPECT_EQ(create_attention(config).error().code, Errc::kInvalidArgument);
  config.heads = 4;
  config.layers[0].index = LayerId(1);
  EXPECT_EQ(create_attention(config).error().code, Errc::kInvalidArgument);
}

TEST(Partial, MergesAsOne) {
  const auto stream = Stream::cpu(1);
  auto a = Partial::create(2, 1, 1);
  auto b = Partial::create(2, 1, 1);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->view().lse[1], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(a->bytes().size(), 16u);
  b->view().out[0] = 4;
  b->view().lse[0] = std::log(3.0f);
  a->merge(*stream, *b);
  EXPECT_EQ(a->out()[0], 4.0f);
  a->view().out[0] = 0;
  a->view().lse[0] = 0;
  a->merge(*stream, *b);
  EXPECT_NEAR(a->out()[0], 3.0f, 1e-6f);
  EXPECT_NEAR(a->view().lse[0], 1.386294361f, 1e-6f);
  EXPECT_EQ(a->out()[1], 0.0f);
  EXPECT_EQ(a->view(1).out, a->view().out + 1);
  EXPECT_EQ(a->view(1).lse, a->view().lse + 1);
}

}  // namespace
}  // namespace lariat
