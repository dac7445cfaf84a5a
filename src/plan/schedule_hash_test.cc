#include "plan/schedule_hash.h"

#include <gtest/gtest.h>

#include <set>

namespace lariat {
namespace {

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

ScheduleConstants constants_of(const Layout& layout, int32_t kv_heads, int32_t interleave) {
  const LayoutShape shape = layout_shape(layout, 4, kv_heads);
  auto placement = Placement::equal(shape.stripes, interleave);
  EXPECT_TRUE(placement.ok());
  return {.layout = layout,
          .placement = *placement,
          .heads = 4,
          .kv_heads = kv_heads,
          .k_dim = 8,
          .v_dim = 8,
          .hidden = 32,
          .kv_element_bytes = 4,
          .windows = {0, 0},
          .ring_block = 16};
}

StepPlan plan_of(int32_t pos0, int32_t n, Strategy strategy, bool use_prev = false) {
  StepPlan plan;
  PlanRow& row = plan.rows.emplace_back();
  row.id = RowId(3);
  row.pos0 = pos0;
  row.n = n;
  row.strategy = strategy;
  row.use_prev = use_prev;
  return plan;
}

const Collective kReady{CollectiveKind::kAllGather, CollectiveGroup::kWorld, 0, {256, 256}};

// 37 new tokens on 2 ranks: 19 and 18 slots, in sub-blocks of 16: two rounds of one shift. A unit of 16 slots
// is 4 heads * 16 slots * (8 + 8) * 4 bytes.
TEST(DeriveSchedule, PassKvByHand) {
  const auto schedule = derive_schedule(plan_of(0, 37, Strategy::kPassKv), constants_of({1, 2}, 4, 1));
  const int64_t unit = 4 * 16 * 16 * 4;
  ASSERT_EQ(schedule.size(), 3u);
  EXPECT_EQ(schedule[0], kReady);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(schedule[i].kind, CollectiveKind::kRingExchange);
    EXPECT_EQ(schedule[i].group, CollectiveGroup::kStripes);
    EXPECT_EQ(schedule[i].bytes, (std::vector<int64_t>{unit, unit}));
  }
}

TEST(DeriveSchedule, DecodeByHand) {
  // tp=4 over 2 KV heads: two duplicates a head, one query head a rank.
  ScheduleConstants constants = constants_of({4, 2}, 2, 1);
  constants.vocab = 49;
  StepPlan plan = plan_of(10, 1, Strategy::kAuto);
  plan.rows[0].wanted = LogitsWanted::kLast;
  plan.rows[0].sample = true;
  const auto schedule = derive_schedule(plan, constants);
  const int64_t q = 8 * 4, partial = 9 * 4;
  const int64_t vocab_part = 13 * 4;  // of 49 over four, by the owner of position 10: cp index 10 % 4 / 2
  const std::vector<Collective> want{
      kReady,
      {CollectiveKind::kAllGather, CollectiveGroup::kDuplicates, 0, {q, q}},
      {CollectiveKind::kAllToAll, CollectiveGroup::kDuplicates, 0, {2 * partial, 2 * partial}},
      {CollectiveKind::kAllGather, CollectiveGroup::kCp, 0, {partial, partial}},
      {CollectiveKind::kAllReduce, CollectiveGroup::kTp, 0, {32 * 4, 32 * 4}},
      {CollectiveKind::kAllGather, CollectiveGroup::kTp, 0, {0, vocab_part}},
      {CollectiveKind::kAllGather, CollectiveGroup::kWorld, 0, {4, 4}}};
  EXPECT_EQ(schedule, want);
}

// All positions' logits of 5 new tokens from 4 on: positions 4, 6, 8 on one cp rank, 5 and 7 on the other; of
// a row that decodes where all K/V is, the home's alone.
TEST(DeriveSchedule, LogitsAreGatheredWhereTheyAreWanted) {
  ScheduleConstants constants = constants_of({2, 2}, 4, 1);
  constants.vocab = 10;
  const auto gathered = [&](const StepPlan& plan) {
    for (const Collective& c : derive_schedule(plan, constants))
      if (c.kind == CollectiveKind::kAllGather && c.group == CollectiveGroup::kTp) return c.bytes;
    return std::vector<int64_t>{};
  };
  StepPlan plan = plan_of(4, 5, Strategy::kPassKv);
  EXPECT_EQ(gathered(plan), std::vector<int64_t>{});
  plan.rows[0].wanted = LogitsWanted::kAll;
  EXPECT_EQ(gathered(plan), (std::vector<int64_t>{3 * 5 * 4, 2 * 5 * 4}));
  plan.rows[0].wanted = LogitsWanted::kLast;
  EXPECT_EQ(gathered(plan), (std::vector<int64_t>{5 * 4, 0}));
  constants.replicated = true;
  plan = plan_of(8, 1, Strategy::kGather);  // row 3 is at home at cp index 1
  plan.rows[0].wanted = LogitsWanted::kLast;
  EXPECT_EQ(gathered(plan), (std::vector<int64_t>{0, 5 * 4}));
}

TEST(DeriveSchedule, EveryConstantThatMovesBytesCounts) {
  const StepPlan plan = plan_of(100, 50, Strategy::kPassKv);
  const ScheduleConstants base = constants_of({1, 3}, 4, 1);
  std::vector<ScheduleConstants> all(7, base);
  all[1].ring_block = 32;
  all[2].kv_element_bytes = 2;
  all[3].windows = {0, 20};
  all[4] = constants_of({1, 3}, 4, 16);
  all[5].replicated = true;
  all[6].k_dim = 16;
  std::set<std::array<uint64_t, 2>> hashes;
  for (const ScheduleConstants& c : all) hashes.insert(schedule_hash(derive_schedule(plan, c)));
  EXPECT_EQ(hashes.size(), all.size());
  StepPlan sealed = plan;
  seal(sealed, base);
  const auto hash = schedule_hash(derive_schedule(plan, base));
  EXPECT_EQ(sealed.schedule_hash[0], hash[0]);
  EXPECT_EQ(sealed.schedule_hash[1], hash[1]);
}

TEST(RowStrategy, OfAPlansRows) {
  const auto of = [](const StepPlan& plan, const ScheduleConstants& c) {
    return row_strategy(plan.rows[0], c);
  };
  const ScheduleConstants two = constants_of({1, 2}, 4, 1);
  EXPECT_EQ(of(plan_of(5, 1, Strategy::kPassKv), two), RowStrategy::kGather);
  EXPECT_EQ(of(plan_of(5, 2, Strategy::kPassKv), two), RowStrategy::kPassKv);
  EXPECT_EQ(of(plan_of(5, 2, Strategy::kPassQ), two), RowStrategy::kPassQ);
  ScheduleConstants long_blocks = two;  // short ones cost a shift each
  long_blocks.ring_block = 4096;
  EXPECT_EQ(of(plan_of(0, 100, Strategy::kAuto), long_blocks), RowStrategy::kPassKv);
  EXPECT_EQ(of(plan_of(100'000, 2, Strategy::kAuto), long_blocks), RowStrategy::kPassQ);
  EXPECT_EQ(of(plan_of(5, 2, Strategy::kPassQ), constants_of({1, 1}, 4, 1)), RowStrategy::kLocal);
  EXPECT_EQ(of(plan_of(5, 2, Strategy::kPassQ), constants_of({2, 1}, 4, 1)), RowStrategy::kLocal);
  ScheduleConstants copies = two;
  copies.replicated = true;
  EXPECT_EQ(of(plan_of(5, 1, Strategy::kAuto, true), copies), RowStrategy::kLocal);
  // A chunk of one token is no decode: every rank needs its K/V.
  EXPECT_EQ(of(plan_of(5, 1, Strategy::kAuto, false), copies), RowStrategy::kPassKv);
  EXPECT_EQ(home_member(plan_of(5, 1, Strategy::kAuto, true).rows[0], copies), 1);
}

TEST(ScheduleHash, OneRankHasNoSchedule) {
  const auto schedule = derive_schedule(plan_of(0, 37, Strategy::kAuto), constants_of({1, 1}, 4, 1));
  EXPECT_TRUE(schedule.empty());
  EXPECT_EQ(schedule_hash(schedule), (std::array<uint64_t, 2>{0, 0}));
}

}  // namespace
}  // namespace lariat
