// A world of ranks as threads that attend random sequences step by step, and the oracle's answer. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <thread>

#include "attention/attention.h"
#include "comm/local/local_groups.h"
#include "ops/attention_testing.h"
#include "ops/ref/attention_ref.h"

namespace lariat::disttest {

struct WorldShape {
  int32_t members = 1;          // cp
  int32_t duplicates = 1;       // R; all of them read one KV head
  std::vector<int32_t> shares;  // of members; empty: equal
  int32_t interleave = 1;
  bool replicated = false;
  int64_t ring_block = 32;
  DType dtype = DType::kF32;
  int32_t page_tokens = 16;
  int heads = 4;     // a rank
  int kv_heads = 2;  // a rank; 1 with duplicates
  std::chrono::milliseconds timeout{60'000};

  int32_t ranks() const { return members * duplicates; }
  Placement placement() const {
    const std::vector<int32_t> equal(static_cast<size_t>(members), 1);
    auto over_members = Placement::shares(shares.empty() ? equal : shares, interleave);
    EXPECT_TRUE(over_members.ok());
    // A member's runs are dealt to its duplicates.
    std::vector<int32_t> pattern;
    for (const int32_t m : over_members->pattern())
      for (int32_t d = 0; d < duplicates; ++d) pattern.push_back(m * duplicates + d);
    auto placement = Placement::create(std::move(pattern), interleave);
    EXPECT_TRUE(placement.ok());
    return *placement;
  }
  std::string str() const {
    std::string s = fmt::format("cp={} R={} interleave={} block={} {}{} shares", members, duplicates,
                                interleave, ring_block, dtype_name(dtype), replicated ? " replicated" : "");
    for (const int32_t share : shares) s += fmt::format(" {}", share);
    return s;
  }
};

inline constexpr int kDim = 16;

// q of all heads of the stripe group: head r * heads + h is head h of duplicate r.
struct TestSequence {
  int32_t length = 0;
  std::vector<float> q, k, v;
};

inline TestSequence make_sequence(const WorldShape& shape, int32_t length, uint32_t seed) {
  std::mt19937 rng(seed);
  TestSequence s;
  s.length = length;
  s.q = kvtest::random_floats(rng, int64_t{length} * shape.duplicates * shape.heads * kDim);
  s.k = kvtest::random_floats(rng, int64_t{length} * shape.kv_heads * kDim);
  s.v = kvtest::random_floats(rng, int64_t{length} * shape.kv_heads * kDim);
  return s;
}

inline const std::vector<Mask>& layer_masks() {
  static const std::vector<Mask> masks{Mask{}, Mask{MaskKind::kWindow, 9}};
  return masks;
}

// [layer][position][head][dim]
using Answer = std::vector<std::vector<float>>;

inline Answer oracle(const WorldShape& shape, const TestSequence& s) {
  Answer answer;
  std::mt19937 rng(1);
  const auto stream = Stream::cpu(1);
  const int heads = shape.heads * shape.duplicates;
  kvtest::PagedKv kv({shape.dtype, shape.kv_heads, kDim, kDim, 16}, std::max(1, s.length), rng);
  std::vector<int64_t> slots(static_cast<size_t>(s.length));
  std::iota(slots.begin(), slots.end(), 0);
  kv.write_to(*stream, s.k.data(), s.v.data(), slots);
  const auto q_pos = kvtest::positions_from(0, s.length);
  for (const Mask& mask : layer_masks()) {
    kvtest::OwnedPartial want(s.length, heads, kDim);
    const AttentionRow row{s.q.data(), q_pos.data(), s.length,    kv.pages(), {},
                           0,          s.length,     want.view(), false,      0};
    ref::attention({heads, 0.25f, mask}, std::span(&row, 1));
    answer.push_back(want.out);
  }
  return answer;
}

// One row of a step, as the plan says it.
struct StepPart {
  size_t sequence = 0;
  int32_t resident = 0;
  int32_t n = 0;
  RowStrategy strategy = RowStrategy::kPassKv;
  int32_t home = 0;  // member of a local row
};
using Steps = std::vector<std::vector<StepPart>>;

// One sequence alone: prefill in chunks (0: whole) until `decode` tokens are left, then one at a time.
inline Steps alone(const WorldShape& shape, int32_t length, int32_t chunk, int32_t decode,
                   RowStrategy strategy) {
  Steps steps;
  const int32_t prefill = std::max(0, length - decode);
  for (int32_t at = 0; at < prefill;) {
    const int32_t n = chunk == 0 ? prefill : std::min(chunk, prefill - at);
    steps.push_back({{0, at, n, strategy, 0}});
    at += n;
  }
  for (int32_t at = prefill; at < length; ++at)
    steps.push_back({{0, at, 1, shape.replicated ? RowStrategy::kLocal : RowStrategy::kGather, 0}});
  return steps;
}

class TestRank {
 public:
  TestRank(const WorldShape& shape, RankGroups& groups, const std::vector<TestSequence>& sequences)
      : shape_(shape), groups_(groups), sequences_(sequences), placement_(shape.placement()) {
    member_ = groups.ring->rank();
    duplicate_ = groups.duplicates->rank();
    stripe_ = StripeIndex(member_ * shape.duplicates + duplicate_);
    const int32_t page = placement_.round_page_tokens(shape.page_tokens);
    const int32_t slots = shape.replicated ? page : placement_.page_slots(stripe_, page);
    int32_t next = 0;
    for (const TestSequence& s : sequences) {
      auto& table = tables_.emplace_back(1);
      for (int32_t at = 0; at < s.length; at += page) table[0].emplace_back(next++);
      // Page ids in disorder.
      std::reverse(table[0].begin(), table[0].end());
    }
    auto store = KvStore::create({2, {shape.dtype, shape.kv_heads, kDim, kDim, slots}, std::max(1, next)});
    EXPECT_TRUE(store.ok());
    store_.emplace(std::move(store).value());
    store_->poison();
    AttentionConfig config{.stream = stream_.get(),
                           .heads = shape.heads,
                           .scale = 0.25f,
                           .groups = {&*store_},
                           .layers = {},
                           .placement = placement_,
                           .stripe = stripe_,
                           .comm = {groups.ring.get(), groups.duplicates.get(), shape.replicated,
                                    shape.ring_block, shape.timeout}};
    for (size_t l = 0; l < layer_masks().size(); ++l)
      config.layers.push_back({0, LayerId(static_cast<int32_t>(l)), layer_masks()[l]});
    auto backend = create_attention(config);
    EXPECT_TRUE(backend.ok()) << backend.error().message;
    backend_ = std::move(backend).value();
  }

  // Runs the steps; what it computed goes to answers [sequence]. The first error ends it.
  Status run(const Steps& steps, std::vector<Answer>& answers) {
    for (const auto& step : steps) LARIAT_RETURN_IF_ERROR(run_step(step, answers));
    return Ok{};
  }
  Status share(size_t sequence, int64_t begin, int64_t end, int32_t home) {
    const HomeRow row{tables_[sequence], begin, end, home};
    return backend_->share(std::span(&row, 1));
  }
  AttentionBackend& backend() { return *backend_; }
  KvStore& store() { return *store_; }
  RankGroups& groups() { return groups_; }

 private:
  std::vector<int32_t> new_positions(const StepPart& part) const {
    std::vector<int32_t> positions;
    const bool share = part.strategy == RowStrategy::kPassKv || part.strategy == RowStrategy::kPassQ;
    for (int32_t pos = part.resident; pos < part.resident + part.n; ++pos)
      if (!share || placement_.owner(TokenPos(pos)).get() / shape_.duplicates == member_)
        positions.push_back(pos);
    return positions;
  }

  Status run_step(const std::vector<StepPart>& parts, std::vector<Answer>& answers) {
    const int heads = shape_.heads;
    const int all_heads = heads * shape_.duplicates;
    const int64_t stride = (heads + 2 * shape_.kv_heads) * kDim;
    std::vector<float> fused;
    std::vector<std::vector<int32_t>> positions;
    std::vector<StepRow> rows;
    std::vector<size_t> of;
    for (const StepPart& part : parts)
      if (part.strategy != RowStrategy::kLocal || part.home == member_) {
        positions.push_back(new_positions(part));
        of.push_back(part.sequence);
      }
    size_t next = 0;
    for (const StepPart& part : parts) {
      if (part.strategy == RowStrategy::kLocal && part.home != member_) continue;
      const auto& mine = positions[next++];
      StepRow row{.first = static_cast<int64_t>(fused.size()) / stride,
                  .n = static_cast<int64_t>(mine.size()),
                  .positions = mine.data(),
                  .length = part.resident + part.n,
                  .pages = tables_[part.sequence],
                  .strategy = part.strategy,
                  .resident = part.resident};
      rows.push_back(row);
      const TestSequence& s = sequences_[part.sequence];
      for (const int32_t pos : mine) {
        const auto add = [&](const float* from, int64_t width) {
          fused.insert(fused.end(), from, from + width);
        };
        add(s.q.data() + (int64_t{pos} * all_heads + duplicate_ * heads) * kDim, heads * kDim);
        add(s.k.data() + int64_t{pos} * shape_.kv_heads * kDim, shape_.kv_heads * kDim);
        add(s.v.data() + int64_t{pos} * shape_.kv_heads * kDim, shape_.kv_heads * kDim);
      }
    }
    LARIAT_RETURN_IF_ERROR(backend_->begin_step(rows));
    const int64_t tokens = static_cast<int64_t>(fused.size()) / stride;
    std::vector<float> out(static_cast<size_t>(tokens * heads * kDim), 777.0f);
    for (size_t l = 0; l < layer_masks().size(); ++l) {
      const float* base = fused.data();
      const LayerInputs in{
          base, stride, base + heads * kDim, stride, base + (heads + shape_.kv_heads) * kDim, stride};
      LARIAT_RETURN_IF_ERROR(backend_->layer(LayerId(static_cast<int32_t>(l)), in, out.data()));
      for (size_t r = 0; r < rows.size(); ++r)
        for (int64_t i = 0; i < rows[r].n; ++i)
          std::copy_n(out.data() + (rows[r].first + i) * heads * kDim, heads * kDim,
                      answers[of[r]][l].data() +
                          (int64_t{rows[r].positions[i]} * all_heads + duplicate_ * heads) * kDim);
    }
    return Ok{};
  }

  WorldShape shape_;
  RankGroups& groups_;
  const std::vector<TestSequence>& sequences_;
  Placement placement_;
  int32_t member_ = 0;
  int32_t duplicate_ = 0;
  StripeIndex stripe_;
  std::vector<std::vector<std::vector<PageId>>> tables_;
  std::unique_ptr<Stream> stream_ = Stream::cpu(1);
  std::optional<KvStore> store_;
  std::unique_ptr<AttentionBackend> backend_;
};

struct WorldRun {
  std::vector<Status> status;                // by rank
  std::vector<std::vector<Answer>> answers;  // by rank, sequence; NaN where the rank computed nothing
};

using RankThreads = std::function<void(const std::function<void(int32_t)>&)>;

inline WorldRun run_world(const WorldShape& shape, std::vector<RankGroups> groups,
                          const std::vector<TestSequence>& sequences, const Steps& steps,
                          const RankThreads& threads) {
  WorldRun run;
  run.status.assign(static_cast<size_t>(shape.ranks()), Ok{});
  for (int32_t r = 0; r < shape.ranks(); ++r) {
    auto& mine = run.answers.emplace_back();
    for (const TestSequence& s : sequences)
      mine.emplace_back(layer_masks().size(), std::vector<float>(s.q.size(), std::nanf("")));
  }
  threads([&](int32_t r) {
    const auto at = static_cast<size_t>(r);
    TestRank rank(shape, groups[at], sequences);
    run.status[at] = rank.run(steps, run.answers[at]);
  });
  return run;
}

inline WorldRun run_local(const WorldShape& shape, const std::vector<TestSequence>& sequences,
                          const Steps& steps) {
  return run_world(shape, make_local_rank_groups({shape.duplicates, shape.members}, shape.duplicates),
                   sequences, steps, [&](const std::function<void(int32_t)>& body) {
                     std::vector<std::thread> threads;
                     for (int32_t r = 0; r < shape.ranks(); ++r) threads.emplace_back(body, r);
                     for (std::thread& t : threads) t.join();
                   });
}

// Every position is computed by at least one rank, by all alike to the bit, and as the oracle says.
inline void check_answers(const WorldShape& shape, const std::vector<TestSequence>& sequences,
                          const WorldRun& run, float tolerance) {
  for (const Status& status : run.status) ASSERT_TRUE(status.ok()) << status.error().message;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Answer want = oracle(shape, sequences[s]);
    for (size_t layer = 0; layer < want.size(); ++layer)
      for (size_t i = 0; i < want[layer].size(); ++i) {
        bool found = false;
        float value = 0;
        for (const auto& answers : run.answers) {
          const float x = answers[s][layer][i];
          if (std::isnan(x)) continue;
          ASSERT_TRUE(!found || std::memcmp(&x, &value, 4) == 0) << "ranks differ";
          found = true;
          value = x;
        }
        ASSERT_TRUE(found) << "layer " << layer << " sequence " << s << " position "
                           << i / (want[layer].size() / static_cast<size_t>(sequences[s].length));
        ASSERT_NEAR(value, want[layer][i], tolerance)
            << "layer " << layer << " sequence " << s << " position "
            << i / (want[layer].size() / static_cast<size_t>(sequences[s].length));
      }
  }
}

}  // namespace lariat::disttest
