#include "plan/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lariat {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

KvShape shape(int64_t layers, int64_t heads, int64_t k, int64_t v, int64_t bytes) {
  return {
      .layers = layers, .kv_heads = heads, .k_dim = k, .v_dim = v, .element_bytes = bytes, .slot_block = 16};
}

// 32768 bytes a token, pages of 64: 2 MiB a page.
CapacityRequest one_rank() {
  CapacityRequest r;
  r.ranks = {{.memory_bytes = 4 * kGiB, .weights_bytes = 2 * kGiB, .workspace_bytes = kGiB}};
  r.stripes = {StripeIndex(0)};
  r.placement = Placement::equal(1, 1).value();
  r.kv = shape(16, 8, 64, 64, 2);
  r.model_context = 131072;
  return r;
}

std::vector<std::string> settings(const Capacity& c) {
  std::vector<std::string> out;
  for (const Refusal& refusal : c.refusals) out.push_back(refusal.setting);
  return out;
}

// Public reports C28, bf16.
TEST(Capacity, KvBytesPerToken) {
  EXPECT_EQ(shape(32, 8, 128, 128, 2).bytes_per_token(), 131072);  // Llama-3.1-8B
  EXPECT_EQ(shape(32, 8, 128, 128, 2).page_bytes(131072), 16 * kGiB);
  EXPECT_EQ(shape(36, 8, 128, 128, 2).bytes_per_token(), 147456);  // Qwen3-8B
  EXPECT_EQ(shape(61, 1, 576, 0, 2).bytes_per_token(), 70272);     // DeepSeek-V3
  EXPECT_EQ(shape(16, 8, 64, 64, 2).bytes_per_token(), 32768);     // Llama-3.2-1B
}

TEST(Capacity, PagesArePaddedToWholeBlocks) {
  const KvShape kv = shape(1, 1, 1, 1, 1);
  EXPECT_EQ(kv.page_bytes(1), 32);
  EXPECT_EQ(kv.page_bytes(16), 32);
  EXPECT_EQ(kv.page_bytes(17), 64);
}

TEST(Capacity, NonsenseShapesSaturate) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(shape(int64_t{1} << 40, int64_t{1} << 40, 1, 1, 1).bytes_per_token(), kMost);
  EXPECT_EQ(shape(1, 1, kMost, 1, 4).page_bytes(1000), kMost);
  auto r = one_rank();
  r.kv.layers = int64_t{1} << 60;
  const auto c = capacity(r);
  EXPECT_EQ(c.pages_total, 0);
  EXPECT_THAT(settings(c), testing::Contains("memory"));
}

TEST(Capacity, MemoryLeftBecomesThePool) {
  const auto c = capacity(one_rank());
  EXPECT_TRUE(c.refusals.empty());
  EXPECT_EQ(c.page_tokens, 64);
  ASSERT_EQ(c.ranks.size(), 1u);
  EXPECT_EQ(c.ranks[0].page_bytes, 2 * kMiB);
  EXPECT_EQ(c.ranks[0].kv_bytes_per_token, 32768);
  EXPECT_EQ(c.pages_total, 512) << "1 GiB left";
  EXPECT_EQ(c.context, 32768) << "the model's 131072 reduced to what fits";
  EXPECT_EQ(c.context_asked, 131072);
  EXPECT_EQ(c.max_context, 32768);
  EXPECT_EQ(c.max_concurrency, 1);
  EXPECT_EQ(c.ranks[0].kv_bytes, kGiB);
  EXPECT_EQ(c.ranks[0].total_bytes, 4 * kGiB);
}

TEST(Capacity, NoMoreThanTheBatchCanUse) {
  auto r = one_rank();
  r.context = 1000;
  r.max_batch = 4;
  const auto c = capacity(r);
  EXPECT_TRUE(c.refusals.empty());
  EXPECT_EQ(c.pages_total, 4 * 16) << "1000 tokens are 16 pages";
  EXPECT_EQ(c.max_context, 1000);
  EXPECT_EQ(c.max_concurrency, 4);
  r.ranks[0].memory_bytes = 0;  // not known
  EXPECT_EQ(capacity(r).pages_total, 64);
}

// b4rtaz/distributed-llama #157: the context asked for takes more KV than there is memory.
TEST(Capacity, ContextThatDoesNotFitIsRefusedWithTheLargest) {
  auto r = one_rank();
  r.context = 40000;
  const auto c = capacity(r);
  ASSERT_EQ(c.refusals.size(), 1u);
  EXPECT_EQ(c.refusals[0].setting, "context");
  EXPECT_THAT(c.refusals[0].reason, HasSubstr("40000"));
  EXPECT_EQ(c.refusals[0].nearest, "32768");
  r.context = 32768;
  EXPECT_TRUE(capacity(r).refusals.empty());
  r.context = 32769;
  EXPECT_EQ(capacity(r).refusals.size(), 1u);
}

// Public reports C28: a pool of 256 tokens under a context of 1024 is a choice, not a fault.
TEST(Capacity, PoolGivenByNameMayBeSmallerThanTheContext) {
  auto r = one_rank();
  r.context = 1024;
  r.page_tokens = 16;
  r.kv_memory_bytes = 256 * 32768 + 100;
  const auto c = capacity(r);
  EXPECT_TRUE(c.refusals.empty());
  EXPECT_EQ(c.pages_total, 16);
  EXPECT_EQ(c.context, 1024);
  EXPECT_EQ(c.context_asked, 1024);
  EXPECT_EQ(kv_bytes_of_context(c), 1024 * 32768);
  EXPECT_EQ(c.max_context, 256);
  EXPECT_EQ(c.max_concurrency, 1);
}

TEST(Capacity, PoolThatIsTooLargeOrTooSmall) {
  auto r = one_rank();
  r.kv_memory_bytes = kGiB;
  EXPECT_TRUE(capacity(r).refusals.empty());
  r.kv_memory_bytes = kGiB + 2 * kMiB;
  auto c = capacity(r);
  EXPECT_EQ(settings(c), std::vector<std::string>{"kv-memory"});
  EXPECT_EQ(c.refusals[0].nearest, std::to_string(kGiB));
  r.kv_memory_bytes = 2 * kMiB - 1;
  c = capacity(r);
  EXPECT_EQ(settings(c), std::vector<std::string>{"kv-memory"});
  EXPECT_EQ(c.refusals[0].nearest, std::to_string(2 * kMiB));
  r.kv_memory_bytes = 0;
  EXPECT_EQ(settings(capacity(r)), std::vector<std::string>{"kv-memory"});
}

TEST(Capacity, WeightsThatDoNotFit) {
  auto r = one_rank();
  r.ranks[0].weights_bytes = 5 * kGiB;
  const auto c = capacity(r);
  EXPECT_EQ(settings(c), (std::vector<std::string>{"kv-memory", "memory"}));
  EXPECT_THAT(c.refusals[1].reason, HasSubstr("rank 0 has 4.00 GiB; weights take 5.00 GiB"));
  EXPECT_EQ(c.max_context, 0);
  EXPECT_EQ(c.max_concurrency, 0);
}

TEST(Capacity, AllBadSettingsAtOnce) {
  auto r = one_rank();
  r.context = 200000;
  r.page_tokens = 0;
  r.max_batch = 0;
  const auto c = capacity(r);
  EXPECT_EQ(settings(c), (std::vector<std::string>{"context", "page-tokens", "max-batch"}));
  EXPECT_EQ(c.refusals[0].nearest, "131072");
  EXPECT_EQ(c.refusals[1].nearest, "1");
  r = one_rank();
  r.context = -1;
  EXPECT_EQ(settings(capacity(r)), std::vector<std::string>{"context"});
  r.context = 200000;
  r.kv_memory_bytes = 1;
  EXPECT_EQ(settings(capacity(r)), (std::vector<std::string>{"context", "kv-memory"}));
}

// Unequal ranks, pattern [0,0,1,0]: rank 0 holds three quarters of each page.
TEST(Capacity, StripesShareAPage) {
  auto r = one_rank();
  const std::vector<int32_t> shares{3, 1};
  r.placement = Placement::shares(shares, 16).value();
  r.ranks = {{.memory_bytes = 4 * kGiB}, {.memory_bytes = kGiB}};
  r.stripes = {StripeIndex(0), StripeIndex(1)};
  r.page_tokens = 50;
  const auto c = capacity(r);
  EXPECT_EQ(c.page_tokens, 64) << "rounded up to the period";
  EXPECT_EQ(c.ranks[0].page_bytes, 48 * 32768);
  EXPECT_EQ(c.ranks[1].page_bytes, 16 * 32768);
  EXPECT_EQ(c.ranks[0].kv_bytes_per_token + c.ranks[1].kv_bytes_per_token, 32768);
  EXPECT_EQ(c.pages_total, kGiB / (16 * 32768)) << "the smaller rank's, since 4/3 of it fit the larger";
  EXPECT_LE(c.ranks[0].total_bytes, 4 * kGiB);
  EXPECT_LE(c.ranks[1].total_bytes, kGiB);
}

// What is granted is used: one page more would not fit, whatever the numbers.
TEST(Capacity, NothingFitsThatIsNotGranted) {
  for (int64_t memory = kGiB; memory < 2 * kGiB; memory += 37 * kMiB + 12345)
    for (const int64_t page_tokens : {1, 16, 17, 64, 4096}) {
      auto r = one_rank();
      r.ranks[0] = {.memory_bytes = memory, .weights_bytes = kGiB / 2, .workspace_bytes = kGiB / 4};
      r.page_tokens = page_tokens;
      const auto c = capacity(r);
      ASSERT_TRUE(c.refusals.empty());
      ASSERT_LE(c.ranks[0].total_bytes, memory);
      ASSERT_GT(c.ranks[0].total_bytes + c.ranks[0].page_bytes, memory);
      ASSERT_EQ(c.max_context, c.pages_total * c.page_tokens);
    }
}

}  // namespace
}  // namespace lariat
