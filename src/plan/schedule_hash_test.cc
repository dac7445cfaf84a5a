#include "plan/schedule_hash.h"

#include <gtest/gtest.h>

#include <set>

namespace lariat {
namespace {

TEST(ScheduleHash, OneRankHasNoSchedule) {
  StepPlan plan;
  plan.rows.resize(2);
  auto schedule = derive_schedule(plan, {1, 1});
  ASSERT_TRUE(schedule.ok());
  EXPECT_TRUE(schedule->empty());
  EXPECT_EQ(schedule_hash(*schedule), (std::array<uint64_t, 2>{0, 0}));
  EXPECT_EQ(derive_schedule(plan, {1, 2}).error().code, Errc::kUnsupported);
}

// The whole input of the hash, once as a literal, so that the wire value cannot drift unseen.
TEST(ScheduleHash, FieldsAreHashedAsLittleEndianWords) {
  const std::vector<Collective> one{{CollectiveKind::kAllToAll, CollectiveGroup::kTp, 3, {1, 258}}};
  const auto hash = schedule_hash(one);
  // XXH3_128bits of Python's struct.pack('<6Q', 2, 1, 3, 2, 1, 258).
  EXPECT_EQ(hash[0], 0x16cba54e1cafca71u);
  EXPECT_EQ(hash[1], 0x96972c954d75cb74u);
}

TEST(ScheduleHash, EveryFieldAndTheOrderCount) {
  const Collective base{CollectiveKind::kAllGather, CollectiveGroup::kCp, 0, {8, 8}};
  Collective kind = base, group = base, root = base, bytes = base, members = base;
  kind.kind = CollectiveKind::kBroadcast;
  group.group = CollectiveGroup::kStripes;
  root.root = 1;
  bytes.bytes[1] = 9;
  members.bytes.push_back(0);
  const std::vector<std::vector<Collective>> all{{base},    {kind},       {group},      {root},      {bytes},
                                                 {members}, {base, base}, {base, kind}, {kind, base}};
  std::set<std::array<uint64_t, 2>> hashes;
  for (const auto& schedule : all) hashes.insert(schedule_hash(schedule));
  EXPECT_EQ(hashes.size(), all.size());
}

}  // namespace
}  // namespace lariat
