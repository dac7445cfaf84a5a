// Every field of every message goes both ways; what no encoder writes is refused by name.
#include "comm/control/codec.h"

#include <gtest/gtest.h>

#include <random>

#include "control.pb.h"

namespace lariat {
namespace {

// A new field changes these: then the codec and the generators below learn it too.
static_assert(sizeof(PlanSampling) == 160 && sizeof(PlanRow) == 248 && sizeof(StepPlan) == 80);
static_assert(sizeof(RowOutcome) == 136 && sizeof(StepOutcome) == 56 && sizeof(Hello) == 208);

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  template <class T>
  T integer() {
    return static_cast<T>(engine_());
  }
  size_t count(size_t max) { return engine_() % (max + 1); }
  float real() { return static_cast<float>(static_cast<int64_t>(engine_())) * 1e-12f; }
  bool coin() { return (engine_() & 1) != 0; }
  std::string text() {
    std::string s;
    for (size_t i = count(20); i > 0; --i) s += static_cast<char>(count(127));
    return s;
  }
  template <class T>
  std::vector<T> list(size_t max) {
    std::vector<T> v(count(max));
    for (T& x : v) x = integer<T>();
    return v;
  }

 private:
  std::mt19937_64 engine_;
};

PlanSampling random_sampling(Random& r) {
  PlanSampling s;
  s.temperature = r.real();
  s.top_k = r.integer<int32_t>();
  s.top_p = r.real();
  s.min_p = r.real();
  s.repetition_penalty = r.real();
  s.presence_penalty = r.real();
  s.frequency_penalty = r.real();
  s.seed = r.integer<uint64_t>();
  s.choice = r.integer<uint32_t>();
  s.output_index = r.integer<uint64_t>();
  s.top_logprobs = r.integer<int32_t>();
  for (size_t i = r.count(5); i > 0; --i)
    s.counts.push_back({r.integer<int32_t>(), r.integer<int32_t>(), r.coin()});
  for (size_t i = r.count(5); i > 0; --i) s.logit_bias.emplace_back(r.integer<int32_t>(), r.real());
  s.banned = r.list<int32_t>(5);
  s.allowed = r.list<uint64_t>(5);
  return s;
}

PlanRow random_row(Random& r) {
  PlanRow row;
  row.id = RowId(r.integer<uint64_t>());
  for (size_t g = r.count(3); g > 0; --g) {
    auto& table = row.pages.emplace_back();
    for (const int32_t page : r.list<int32_t>(9)) table.emplace_back(page);
  }
  row.pos0 = r.integer<int32_t>();
  row.n = r.integer<int32_t>();
  row.tokens = r.list<int32_t>(9);
  row.use_prev = r.coin();
  row.strategy = static_cast<Strategy>(r.count(3));
  row.wanted = static_cast<LogitsWanted>(r.count(2));
  row.sample = r.coin();
  row.sampling = random_sampling(r);
  row.prompt_logprobs = r.integer<int32_t>();
  row.next_token = r.integer<int32_t>();
  row.logits_first = r.integer<int32_t>();
  row.logits_count = r.integer<int32_t>();
  return row;
}

StepPlan random_plan(Random& r) {
  StepPlan plan;
  plan.epoch = Epoch(r.integer<uint64_t>());
  plan.step = StepId(r.integer<uint64_t>());
  for (size_t i = r.count(4); i > 0; --i) plan.rows.push_back(random_row(r));
  for (const uint64_t id : r.list<uint64_t>(4)) plan.forget.emplace_back(id);
  plan.schedule_hash[0] = r.integer<uint64_t>();
  plan.schedule_hash[1] = r.integer<uint64_t>();
  return plan;
}

PositionLogprobs random_logprobs(Random& r) {
  PositionLogprobs p;
  p.logprob = r.real();
  for (size_t i = r.count(3); i > 0; --i) p.top.push_back({r.integer<int32_t>(), r.real()});
  return p;
}

StepOutcome random_outcome(Random& r) {
  StepOutcome o;
  o.epoch = Epoch(r.integer<uint64_t>());
  o.step = StepId(r.integer<uint64_t>());
  for (size_t i = r.count(4); i > 0; --i) {
    RowOutcome& row = o.rows.emplace_back();
    row.id = RowId(r.integer<uint64_t>());
    row.token = r.integer<int32_t>();
    row.token_logprobs = random_logprobs(r);
    for (size_t j = r.count(3); j > 0; --j) row.prompt.push_back(random_logprobs(r));
    for (size_t j = r.count(3); j > 0; --j) {
      row.logits.push_back({r.integer<int32_t>(), {}});
      for (size_t k = r.count(9); k > 0; --k) row.logits.back().values.push_back(r.real());
    }
    row.failed = r.coin();
    row.error = static_cast<Errc>(r.count(8));
    row.message = r.text();
  }
  o.compute_us = r.integer<int64_t>();
  o.comm_wait_us = r.integer<int64_t>();
  return o;
}

Hello random_hello(Random& r) {
  Hello h;
  h.protocol_major = r.integer<uint32_t>();
  h.protocol_minor = r.integer<uint32_t>();
  h.build_id = r.text();
  h.weights_hash[0] = r.integer<uint64_t>();
  h.weights_hash[1] = r.integer<uint64_t>();
  h.kv_type = r.text();
  h.store_pattern = r.list<int32_t>(5);
  h.compute_pattern = r.list<int32_t>(5);
  h.interleave = r.integer<int32_t>();
  h.ring_block = r.integer<int32_t>();
  h.device = r.text();
  h.rank = r.integer<int32_t>();
  h.world = r.integer<int32_t>();
  h.pid = r.integer<int64_t>();
  h.page_tokens = r.integer<int32_t>();
  h.pages_total = r.integer<int32_t>();
  h.cache_groups = r.integer<int32_t>();
  h.vocab = r.integer<int32_t>();
  return h;
}

template <class T>
T round_trip(const T& message) {
  const bool to_rank = std::is_constructible_v<ToRank, T>;
  if constexpr (to_rank) {
    auto bytes = to_bytes(ToRank(message));
    auto back = to_rank_from_bytes(*bytes);
    return std::get<T>(*back);
  } else {
    auto bytes = to_bytes(FromRank(message));
    auto back = from_rank_from_bytes(*bytes);
    return std::get<T>(*back);
  }
}

constexpr int kRounds = 500;

TEST(ControlCodec, PlansGoBothWays) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random r(static_cast<uint64_t>(seed));
    const StepPlan plan = random_plan(r);
    ASSERT_EQ(round_trip(plan), plan) << "seed " << seed;
  }
  EXPECT_EQ(round_trip(StepPlan{}), StepPlan{});
}

TEST(ControlCodec, OutcomesGoBothWays) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random r(static_cast<uint64_t>(seed));
    const StepOutcome outcome = random_outcome(r);
    ASSERT_EQ(round_trip(outcome), outcome) << "seed " << seed;
  }
  EXPECT_EQ(round_trip(StepOutcome{}), StepOutcome{});
}

TEST(ControlCodec, HellosGoBothWays) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random r(static_cast<uint64_t>(seed));
    const RankHello in{Epoch(r.integer<uint64_t>()), random_hello(r)};
    const RankHello out = round_trip(in);
    const Hello &a = in.hello, &b = out.hello;
    ASSERT_EQ(out.epoch, in.epoch);
    ASSERT_EQ(b.protocol_major, a.protocol_major);
    ASSERT_EQ(b.protocol_minor, a.protocol_minor);
    ASSERT_EQ(b.build_id, a.build_id);
    ASSERT_EQ(b.weights_hash[0], a.weights_hash[0]);
    ASSERT_EQ(b.weights_hash[1], a.weights_hash[1]);
    ASSERT_EQ(b.kv_type, a.kv_type);
    ASSERT_EQ(b.store_pattern, a.store_pattern);
    ASSERT_EQ(b.compute_pattern, a.compute_pattern);
    ASSERT_EQ(b.interleave, a.interleave);
    ASSERT_EQ(b.ring_block, a.ring_block);
    ASSERT_EQ(b.device, a.device);
    ASSERT_EQ(b.rank, a.rank);
    ASSERT_EQ(b.world, a.world);
    ASSERT_EQ(b.pid, a.pid);
    ASSERT_EQ(b.page_tokens, a.page_tokens);
    ASSERT_EQ(b.pages_total, a.pages_total);
    ASSERT_EQ(b.cache_groups, a.cache_groups);
    ASSERT_EQ(b.vocab, a.vocab);
  }
}

TEST(ControlCodec, SmallMessagesGoBothWays) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random r(static_cast<uint64_t>(seed));
    const StartRank start{Epoch(r.integer<uint64_t>()), r.integer<int32_t>(),  r.integer<int32_t>(),
                          r.integer<uint32_t>(),        r.integer<uint32_t>(), r.text()};
    ASSERT_EQ(round_trip(start), start);
    const AbortStep abort{Epoch(r.integer<uint64_t>()), StepId(r.integer<uint64_t>())};
    ASSERT_EQ(round_trip(abort), abort);
    const ShutdownRank shutdown{Epoch(r.integer<uint64_t>())};
    ASSERT_EQ(round_trip(shutdown), shutdown);
    const LoadProgress progress{Epoch(r.integer<uint64_t>()), r.real(), r.text()};
    ASSERT_EQ(round_trip(progress), progress);
    const Heartbeat beat{Epoch(r.integer<uint64_t>()), StepId(r.integer<uint64_t>()), r.integer<uint64_t>(),
                         r.integer<int64_t>()};
    ASSERT_EQ(round_trip(beat), beat);
    const RankFailure failure{Epoch(r.integer<uint64_t>()), StepId(r.integer<uint64_t>()),
                              static_cast<FailureKind>(r.count(2)),
                              Error{static_cast<Errc>(r.count(8)), r.text(), r.text()}};
    const RankFailure back = round_trip(failure);
    ASSERT_EQ(back.epoch, failure.epoch);
    ASSERT_EQ(back.step, failure.step);
    ASSERT_EQ(back.kind, failure.kind);
    ASSERT_EQ(back.error.code, failure.error.code);
    ASSERT_EQ(back.error.message, failure.error.message);
    ASSERT_EQ(back.error.param, failure.error.param);
  }
}

TEST(ControlCodec, ReasonsThatAreNotUtf8AreEscaped) {
  const RankFailure failure{Epoch(1), StepId(2), FailureKind::kLoad,
                            make_error(Errc::kCorruptData, "key \xff\xc3(", "caf\xc3\xa9")};
  const RankFailure back = round_trip(failure);
  EXPECT_EQ(back.error.message, "key \\xff\\xc3(");
  EXPECT_EQ(back.error.param, "caf\xc3\xa9");
}

TEST(ControlCodec, WhatNoEncoderWritesIsRefusedByName) {
  EXPECT_EQ(to_rank_from_bytes("").error().code, Errc::kCorruptData);
  EXPECT_EQ(from_rank_from_bytes("").error().code, Errc::kCorruptData);
  EXPECT_EQ(to_rank_from_bytes("\xff\xff\xff").error().code, Errc::kCorruptData);

  control_v1::ToRank plan;
  plan.mutable_plan()->add_rows()->set_strategy(4);
  EXPECT_EQ(decode(plan).error().message, "row.strategy is 4, past the last known value 3");
  plan.mutable_plan()->mutable_rows(0)->set_strategy(0);
  plan.mutable_plan()->mutable_rows(0)->set_wanted(77);
  EXPECT_EQ(decode(plan).error().message, "row.wanted is 77, past the last known value 2");
  plan.mutable_plan()->mutable_rows(0)->set_wanted(0);
  plan.mutable_plan()->mutable_rows(0)->mutable_sampling()->add_bias_ids(3);
  EXPECT_EQ(decode(plan).error().message, "sampling.bias has 1 ids and 0 values");

  control_v1::FromRank outcome;
  outcome.mutable_outcome()->add_rows()->set_error(9);
  EXPECT_EQ(decode(outcome).error().message, "outcome.rows.error is 9, past the last known value 8");
  control_v1::FromRank failure;
  failure.mutable_failure()->set_kind(3);
  EXPECT_EQ(decode(failure).error().message, "failure.kind is 3, past the last known value 2");
}

TEST(ControlCodec, OversizeMessagesAreRefused) {
  StepPlan plan;
  PlanRow& row = plan.rows.emplace_back();
  row.sampling.allowed.assign(kControlMessageBytesMax / 8 + 1, ~uint64_t{0});
  const auto bytes = to_bytes(ToRank(plan));
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().code, Errc::kResourceExhausted);
}

TEST(ControlCodec, AnyBytesEndInAValueOrAnError) {
  std::mt19937_64 engine(7);
  Random r(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = *to_bytes(ToRank(random_plan(r)));
    for (size_t flips = 1 + engine() % 4; flips > 0 && !bytes.empty(); --flips)
      bytes[engine() % bytes.size()] = static_cast<char>(engine());
    bytes.resize(engine() % (bytes.size() + 1));
    const auto result = to_rank_from_bytes(bytes);
    if (!result.ok()) {
      EXPECT_EQ(result.error().code, Errc::kCorruptData);
    }
  }
}

}  // namespace
}  // namespace lariat
