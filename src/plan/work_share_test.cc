#include "plan/work_share.h"

#include <gtest/gtest.h>

namespace lariat {
namespace {

TEST(WorkShare, OfShares) {
  const auto shares = work_shares(*Placement::shares(std::vector<int32_t>{1, 2, 40}, 16), 1);
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_NEAR(shares[0], 1.0 / 43, 1e-12);
  EXPECT_NEAR(shares[1], 2.0 / 43, 1e-12);
  EXPECT_NEAR(shares[2], 40.0 / 43, 1e-12);
  const auto brake = find_brake(shares);
  ASSERT_TRUE(brake.has_value());
  EXPECT_EQ(brake->cp_index, 2);
  EXPECT_NEAR(brake->share, 40.0 / 43, 1e-12);
  EXPECT_NEAR(brake->speed, 43.0 / 120, 1e-12);
}

TEST(WorkShare, EqualSharesHaveNoBrake) {
  for (const int32_t ranks : {1, 2, 3, 7}) {
    EXPECT_FALSE(find_brake(work_shares(*Placement::equal(ranks, 1), 1)).has_value());
    const auto twice = work_shares(*Placement::equal(2 * ranks, 1), 2);  // two stripes a cp index
    ASSERT_EQ(twice.size(), static_cast<size_t>(ranks));
    EXPECT_NEAR(twice[0], 1.0 / ranks, 1e-12);
  }
  EXPECT_FALSE(find_brake(std::vector<double>{0.54, 0.46}).has_value());
  EXPECT_TRUE(find_brake(std::vector<double>{0.56, 0.44}).has_value());
}

}  // namespace
}  // namespace lariat
