#include "sched/row.h"

#include <gtest/gtest.h>

namespace lariat {
namespace {

// Public reports C39: prompt holds token 5 ten times, output 7, 7, 3. Presence and frequency count output
// only.
TEST(Row, CountsForPenalties) {
  SamplingSettings frequency, repeated;
  frequency.frequency_penalty = 1.0f;
  repeated.repetition_penalty = 1.1f;
  PenaltyCounts output_only(frequency, std::vector<int32_t>(10, 5));
  PenaltyCounts repetition(repeated, std::vector<int32_t>(10, 5));
  PenaltyCounts none({}, std::vector<int32_t>(10, 5));
  for (auto* counts : {&output_only, &repetition, &none})
    for (const int32_t token : {7, 7, 3}) counts->add_output(token);
  const PlanTokenCount five{5, 0, true}, seven{7, 2, false}, three{3, 1, false};
  EXPECT_EQ(output_only.counts(), (std::vector<PlanTokenCount>{seven, three}));
  EXPECT_EQ(repetition.counts(), (std::vector<PlanTokenCount>{five, seven, three}));
  EXPECT_TRUE(none.counts().empty());
}

}  // namespace
}  // namespace lariat
