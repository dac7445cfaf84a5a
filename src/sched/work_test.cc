#include "sched/work.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lariat {
namespace {

TEST(WorkModel, ClosedFormIsTheSum) {
  for (const int64_t window : {0, 1, 5, 16, 100}) {
    const WorkModel w{.token = 3, .depth = 2, .window = window};
    for (int64_t pos0 = 0; pos0 < 40; ++pos0) {
      double sum = 0;
      for (int64_t n = 0; n < 40; ++n) {
        ASSERT_EQ(w.of(pos0, n), sum) << pos0 << " " << n << " " << window;
        const int64_t keys = pos0 + n + 1;
        sum += 3 + 2 * static_cast<double>(window > 0 ? std::min(keys, window) : keys);
      }
    }
  }
}

TEST(WorkModel, LongestChunkWithinABudget) {
  const WorkModel w{.token = 100, .depth = 1, .window = 0};
  for (const int64_t pos0 : {0, 10, 1000, 100000})
    for (const double budget : {0.0, 99.0, 101.0, 5000.0, 1e6}) {
      const int64_t n = w.tokens_within(pos0, 512, budget);
      EXPECT_TRUE(n == 0 || w.of(pos0, n) <= budget);
      EXPECT_TRUE(n == 512 || w.of(pos0, n + 1) > budget);
    }
  EXPECT_EQ(w.tokens_within(0, 0, 1e9), 0);
  EXPECT_EQ(w.tokens_within(0, -5, 1e9), 0);
}

}  // namespace
}  // namespace lariat
