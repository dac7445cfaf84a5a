#include "plan/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace lariat {
namespace {

using testing::HasSubstr;

TEST(Layout, Parses) {
  EXPECT_EQ(*parse_layout("tp=2,cp=3"), (Layout{2, 3}));
  EXPECT_EQ(*parse_layout("cp=3,tp=2"), (Layout{2, 3}));
  EXPECT_EQ(*parse_layout("cp=5"), (Layout{1, 5}));
  EXPECT_EQ(*parse_layout("tp=4"), (Layout{4, 1}));
  EXPECT_EQ(parse_layout("tp=2,cp=3")->text(), "tp=2,cp=3");
  EXPECT_EQ(*layout_of_ranks(3), (Layout{1, 3}));
}

TEST(Layout, RefusesWhatIsNoLayout) {
  for (const char* text :
       {"", "tp", "tp=", "tp=0", "tp=-1", "tp=2,", ",tp=2", "tp=2,,cp=1", "tp=2,tp=2", "tp=2 ", "tp=2x",
        "ep=2", "TP=2", "tp=99999999999", "cp=4097", "tp=64,cp=65", "=2", "tp=1.5"}) {
    auto layout = parse_layout(text);
    ASSERT_FALSE(layout.ok()) << text;
    EXPECT_EQ(layout.error().code, Errc::kInvalidArgument) << text;
    EXPECT_EQ(layout.error().param, "layout");
  }
  EXPECT_EQ(parse_layout("tp=1,cp=1,pp=2").error().code, Errc::kUnsupported);
  EXPECT_THAT(parse_layout("tp=2,tp=2").error().message, HasSubstr("twice"));
  for (const int32_t ranks : {0, -1, 4097}) EXPECT_FALSE(layout_of_ranks(ranks).ok());
}

// Every layout that passes: each KV head of each stripe of positions is held by exactly one rank.
TEST(Layout, EachHeadOfEachStripeIsHeldOnce) {
  int passed = 0;
  for (int32_t heads = 1; heads <= 16; ++heads)
    for (int32_t kv_heads = 1; kv_heads <= heads; ++kv_heads) {
      if (heads % kv_heads != 0) continue;
      for (int32_t tp = 1; tp <= 17; ++tp)
        for (int32_t cp = 1; cp <= 3; ++cp) {
          const Layout layout{tp, cp};
          const bool ok = heads % tp == 0 && (kv_heads % tp == 0 || tp % kv_heads == 0);
          ASSERT_EQ(!check_layout(layout, heads, kv_heads), ok);
          if (!ok) continue;
          ++passed;
          const auto shape = layout_shape(layout, heads, kv_heads);
          ASSERT_EQ(shape.heads * tp, heads);
          ASSERT_EQ(shape.kv_heads * shape.kv_shards, kv_heads);
          ASSERT_EQ(shape.stripes * shape.kv_shards, layout.world());
          std::set<std::pair<int32_t, StripeIndex>> held;
          for (int32_t c = 0; c < cp; ++c)
            for (int32_t t = 0; t < tp; ++t) {
              const Rank rank = layout.rank(c, t);
              const int32_t shard = kv_shard(layout, shape, rank);
              const StripeIndex stripe = stripe_of(layout, shape, rank);
              ASSERT_LT(shard, shape.kv_shards);
              ASSERT_LT(stripe.get(), shape.stripes);
              ASSERT_TRUE(held.emplace(shard, stripe).second);
              // The rank's first query head reads a KV head of its shard.
              ASSERT_EQ(t * shape.heads / (heads / kv_heads) / shape.kv_heads, shard);
            }
        }
    }
  EXPECT_GT(passed, 300);
}

// Public reports C24: query and KV heads against ranks.
TEST(Layout, HeadsAgainstRanks) {
  EXPECT_FALSE(check_layout({8, 1}, 8, 4).has_value());
  EXPECT_EQ(layout_shape({8, 1}, 8, 4).duplicates, 2);
  EXPECT_FALSE(check_layout({4, 1}, 8, 2).has_value());
  EXPECT_FALSE(check_layout({4, 1}, 16, 1).has_value());
  EXPECT_EQ(layout_shape({4, 1}, 16, 1).stripes, 4);
  const auto five = check_layout({5, 1}, 32, 8);
  ASSERT_TRUE(five.has_value());
  EXPECT_EQ(five->reason, "32 query heads do not divide over tp=5");
  EXPECT_EQ(five->nearest, "tp=1,cp=5 or tp=4,cp=1 or tp=8,cp=1");
  const auto eight = check_layout({8, 1}, 52, 52);
  ASSERT_TRUE(eight.has_value());
  EXPECT_EQ(eight->reason, "52 query heads do not divide over tp=8");
  EXPECT_EQ(eight->nearest, "tp=4,cp=2 or tp=13,cp=1");
  const auto six = check_layout({6, 1}, 12, 4);
  ASSERT_TRUE(six.has_value());
  EXPECT_EQ(six->reason, "tp=6 neither divides 4 KV heads nor is a multiple of them");
  // Split by position alone every one of them works.
  for (const auto& [heads, kv] : std::map<int32_t, int32_t>{{8, 4}, {32, 8}, {52, 52}, {16, 1}})
    for (const int32_t ranks : {1, 4, 5, 8}) EXPECT_FALSE(check_layout({1, ranks}, heads, kv).has_value());
}

TEST(Layout, NearestLayoutsAreLayouts) {
  for (int32_t heads = 1; heads <= 24; ++heads)
    for (int32_t kv_heads = 1; kv_heads <= heads; ++kv_heads)
      for (int32_t tp = 1; tp <= 26 && heads % kv_heads == 0; ++tp) {
        const auto refusal = check_layout({tp, 2}, heads, kv_heads);
        if (!refusal) continue;
        ASSERT_FALSE(refusal->nearest.empty());
        std::string rest = refusal->nearest;
        for (size_t at = 0; at != std::string::npos;
             rest = at == std::string::npos ? "" : rest.substr(at + 4)) {
          at = rest.find(" or ");
          auto layout = parse_layout(rest.substr(0, at));
          ASSERT_TRUE(layout.ok()) << refusal->nearest;
          ASSERT_FALSE(check_layout(*layout, heads, kv_heads).has_value()) << refusal->nearest;
        }
      }
}

}  // namespace
}  // namespace lariat
