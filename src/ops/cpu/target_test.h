// Test fixture that runs a test once per compiled instruction set; those the CPU lacks are skipped by name.
// Tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hwy/targets.h"  // not highway.h, which must follow foreach_target.h

namespace lariat {

inline std::vector<int64_t> compiled_targets() {
  std::vector<int64_t> targets;
  for (int64_t rest = HWY_TARGETS; rest != 0; rest &= rest - 1) targets.push_back(rest & -rest);
  return targets;
}

class TargetTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & GetParam()) == 0)
      GTEST_SKIP() << "this CPU lacks " << hwy::TargetName(GetParam());
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline std::string target_param_name(const ::testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

}  // namespace lariat

#define LARIAT_FOR_EACH_TARGET(fixture)                                                   \
  INSTANTIATE_TEST_SUITE_P(Isa, fixture, ::testing::ValuesIn(lariat::compiled_targets()), \
                           lariat::target_param_name)
