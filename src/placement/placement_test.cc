// Placement against a walk over positions one by one, exhaustively over small patterns.
#include "placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace lariat {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> local_counts(const Placement& p, int64_t length) {
  std::vector<int64_t> out;
  for (int32_t s = 0; s < p.stripes(); ++s) out.push_back(p.local_count(StripeIndex(s), length));
  return out;
}

std::vector<int32_t> pattern_of(std::vector<int32_t> shares) {
  auto p = Placement::shares(shares, 1);
  EXPECT_TRUE(p.ok()) << p.error().message;
  return p.ok() ? std::vector<int32_t>(p->pattern().begin(), p->pattern().end()) : std::vector<int32_t>{};
}

// Every property over positions [0, periods * period], against counters that walk.
void check_against_walk(const Placement& p, const std::vector<int32_t>& pattern, int32_t interleave) {
  const int32_t length = 3 * p.period() + 1;
  std::vector<int64_t> held(static_cast<size_t>(p.stripes()), 0);
  for (int32_t pos = 0; pos < length; ++pos) {
    ASSERT_EQ(local_counts(p, pos), held) << "length " << pos;
    const int32_t owner = pattern[static_cast<size_t>(pos / interleave) % pattern.size()];
    ASSERT_EQ(p.owner(TokenPos(pos)), StripeIndex(owner)) << pos;
    const LocalSlot slot(static_cast<int32_t>(held[static_cast<size_t>(owner)]++));
    ASSERT_EQ(p.local_slot(TokenPos(pos)), slot) << pos;
    ASSERT_EQ(p.position(StripeIndex(owner), slot), TokenPos(pos));
  }
  int32_t slots = 0;
  std::set<int32_t> seen;
  for (int32_t s = 0; s < p.stripes(); ++s) {
    const StripeIndex stripe(s);
    const auto offsets = p.offsets(stripe);
    ASSERT_EQ(static_cast<int32_t>(offsets.size()), p.slots_per_period(stripe));
    ASSERT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
    seen.insert(offsets.begin(), offsets.end());
    slots += p.slots_per_period(stripe);
    ASSERT_EQ(p.page_slots(stripe, 2 * p.period()), p.local_count(stripe, 2 * p.period()));
  }
  ASSERT_EQ(slots, p.period());
  ASSERT_EQ(static_cast<int32_t>(seen.size()), p.period());
  // A page begins at a multiple of the period, so a position's page is the same on every rank and a local
  // slot's page is local_slot / page_slots.
  const int32_t page = p.round_page_tokens(p.period() + 1);
  ASSERT_EQ(page, 2 * p.period());
  for (int32_t pos = 0; pos < length; ++pos) {
    const auto owner = p.owner(TokenPos(pos));
    ASSERT_EQ(p.local_slot(TokenPos(pos)).get() / p.page_slots(owner, page), pos / page);
  }
}

TEST(Placement, EveryPatternToFiveEntries) {
  int checked = 0;
  int refused = 0;
  for (size_t entries = 1; entries <= 5; ++entries) {
    std::vector<int32_t> pattern(entries, 0);
    while (true) {
      const std::set<int32_t> named(pattern.begin(), pattern.end());
      const bool whole = *named.rbegin() + 1 == static_cast<int32_t>(named.size());
      for (const int32_t interleave : {1, 2, 3, 16}) {
        auto p = Placement::create(pattern, interleave);
        ASSERT_EQ(p.ok(), whole);
        if (!whole) {
          ++refused;
          continue;
        }
        ++checked;
        ASSERT_EQ(p->period(), interleave * static_cast<int32_t>(entries));
        ASSERT_NO_FATAL_FAILURE(check_against_walk(*p, pattern, interleave));
      }
      size_t i = 0;
      while (i < entries && ++pattern[i] == static_cast<int32_t>(entries)) pattern[i++] = 0;
      if (i == entries) break;
    }
  }
  // Surjections onto 0..k-1 counted over lengths 1..5 (Fubini numbers 1, 3, 13, 75, 541), four interleaves.
  EXPECT_EQ(checked, 4 * (1 + 3 + 13 + 75 + 541));
  EXPECT_EQ(refused, 4 * (1 + 4 + 27 + 256 + 3125) - checked);
}

TEST(Placement, OneRankIsTheIdentity) {
  for (const int32_t interleave : {1, 7, 256}) {
    auto p = Placement::equal(1, interleave);
    ASSERT_TRUE(p.ok());
    for (const int32_t pos : {0, 1, 6, 7, 255, 256, 131071, std::numeric_limits<int32_t>::max()}) {
      EXPECT_EQ(p->owner(TokenPos(pos)), StripeIndex(0));
      EXPECT_EQ(p->local_slot(TokenPos(pos)), LocalSlot(pos));
      EXPECT_EQ(p->position(StripeIndex(0), LocalSlot(pos)), TokenPos(pos));
      EXPECT_EQ(p->local_count(StripeIndex(0), pos), pos);
    }
  }
}

TEST(Placement, EqualStripesOfInterleaveOneAreModuloAndQuotient) {
  for (int32_t stripes = 1; stripes <= 9; ++stripes) {
    auto p = Placement::equal(stripes, 1);
    ASSERT_TRUE(p.ok());
    for (int32_t pos = 0; pos < 100; ++pos) {
      EXPECT_EQ(p->owner(TokenPos(pos)).get(), pos % stripes);
      EXPECT_EQ(p->local_slot(TokenPos(pos)).get(), pos / stripes);
    }
  }
}

// Lengths that public reports got wrong (jzhang38/EasyContext #47; vllm-project/vllm #26696).
TEST(Placement, LengthsThatDoNotDivide) {
  EXPECT_THAT(local_counts(*Placement::equal(4, 1), 5), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(local_counts(*Placement::equal(4, 4), 5), ElementsAre(4, 1, 0, 0));
  EXPECT_THAT(local_counts(*Placement::equal(4, 4), 3), ElementsAre(3, 0, 0, 0));
  EXPECT_THAT(local_counts(*Placement::equal(4, 16), 17), ElementsAre(16, 1, 0, 0));
  EXPECT_THAT(local_counts(*Placement::equal(4, 16), 65), ElementsAre(17, 16, 16, 16));
  EXPECT_THAT(local_counts(*Placement::equal(4, 1), 2999), ElementsAre(750, 750, 750, 749));
  EXPECT_THAT(local_counts(*Placement::equal(3, 1), 157), ElementsAre(53, 52, 52));
}

TEST(Placement, SharesAreSpreadSmoothly) {
  EXPECT_THAT(pattern_of({3, 1}), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(pattern_of({6, 2}), ElementsAre(0, 0, 1, 0));
  // nginx's published example of the algorithm: {5, 1, 1} -> a a b a c a a.
  EXPECT_THAT(pattern_of({5, 1, 1}), ElementsAre(0, 0, 1, 0, 2, 0, 0));
  EXPECT_THAT(pattern_of({4, 4, 4}), ElementsAre(0, 1, 2));
  EXPECT_THAT(pattern_of({7}), ElementsAre(0));
  EXPECT_THAT(pattern_of({1, 3}), ElementsAre(1, 0, 1, 1));
}

TEST(Placement, SharesKeepTheirProportionInEveryPrefix) {
  for (int32_t a = 1; a <= 8; ++a)
    for (int32_t b = 1; b <= 8; ++b)
      for (int32_t c = 1; c <= 8; ++c) {
        const std::vector<int32_t> shares{a, b, c};
        auto p = Placement::shares(shares, 1);
        ASSERT_TRUE(p.ok());
        for (int64_t length = 0; length <= p->period(); ++length)
          for (int32_t s = 0; s < 3; ++s) {
            const double exact = static_cast<double>(length) * shares[static_cast<size_t>(s)] / (a + b + c);
            const auto held = static_cast<double>(p->local_count(StripeIndex(s), length));
            ASSERT_LT(std::abs(held - exact), 1.0) << a << "," << b << "," << c << " length " << length;
          }
      }
}

TEST(Placement, RefusesWhatIsNoPlacement) {
  const auto message = [](std::vector<int32_t> pattern, int32_t interleave) {
    auto p = Placement::create(std::move(pattern), interleave);
    EXPECT_FALSE(p.ok());
    if (p.ok()) return std::string();
    EXPECT_EQ(p.error().code, Errc::kInvalidArgument);
    return p.error().message;
  };
  EXPECT_THAT(message({}, 1), HasSubstr("empty"));
  EXPECT_THAT(message({0}, 0), HasSubstr("interleave must be at least 1, not 0"));
  EXPECT_THAT(message({0}, -3), HasSubstr("not -3"));
  EXPECT_THAT(message({0, 2, 2}, 1), HasSubstr("stripe 1 of 3"));
  EXPECT_THAT(message({0, 5}, 1), HasSubstr("names stripe 5"));
  EXPECT_THAT(message({0, -1}, 1), HasSubstr("names stripe -1"));
  EXPECT_THAT(message({0, std::numeric_limits<int32_t>::max()}, 1), HasSubstr("names stripe 2147483647"));
  EXPECT_THAT(message({0, 1}, std::numeric_limits<int32_t>::max()), HasSubstr("at most 524288"));
  EXPECT_THAT(message(std::vector<int32_t>(4097, 0), 1), HasSubstr("at most 4096"));

  const std::vector<int32_t> none{};
  const std::vector<int32_t> zero{3, 0};
  const std::vector<int32_t> coarse{1 << 30, 1};
  EXPECT_FALSE(Placement::shares(none, 1).ok());
  EXPECT_THAT(Placement::shares(zero, 1).error().message, HasSubstr("at least 1, not 0"));
  EXPECT_THAT(Placement::shares(coarse, 1).error().message, HasSubstr("1073741825 entries"));
  EXPECT_FALSE(Placement::equal(0, 1).ok());
  EXPECT_FALSE(Placement::equal(-1, 1).ok());
  EXPECT_FALSE(Placement::equal(4097, 1).ok());
}

TEST(Placement, LastPositionsDoNotOverflow) {
  constexpr int32_t kLast = std::numeric_limits<int32_t>::max();
  for (const int32_t stripes : {1, 2, 3, 7}) {
    auto p = Placement::equal(stripes, 16);
    const auto owner = p->owner(TokenPos(kLast));
    const auto slot = p->local_slot(TokenPos(kLast));
    EXPECT_EQ(p->position(owner, slot), TokenPos(kLast));
    EXPECT_EQ(p->local_count(owner, kLast), slot.get());
    EXPECT_EQ(p->local_count(owner, int64_t{kLast} + 1), int64_t{slot.get()} + 1);
  }
}

}  // namespace
}  // namespace lariat
