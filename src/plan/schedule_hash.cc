#include "plan/schedule_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <string>

#include "ring/kv_rotation.h"
#include "ring/query_rotation.h"

namespace lariat {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kSlotUnit = 16;  // kKvBlock of ops/: slots of K/V move in whole blocks

// Writes the collectives of one pass.
class Derivation {
 public:
  Derivation(const StepPlan& plan, const Pass& pass, const ScheduleConstants& constants)
      : c_(constants),
        shape_(layout_shape(constants.layout, constants.heads, constants.kv_heads)),
        cp_(constants.layout.cp),
        apart_(shape_.duplicates > 1 || constants.replicated) {
    std::vector<int32_t> pattern;
    for (const int32_t stripe : c_.placement.pattern()) pattern.push_back(stripe / shape_.duplicates);
    auto compute = Placement::create(std::move(pattern), c_.placement.interleave());
    LARIAT_CHECK(compute.ok(), "{}", compute.error().message);
    compute_.emplace(std::move(compute).value());
    for (const PassSegment& s : pass) rows_.push_back({&plan.rows[s.row], s});
  }

  std::vector<Collective> run() {
    if (c_.layout.world() == 1) return {};
    add(CollectiveKind::kAllGather, CollectiveGroup::kWorld,
        std::vector<int64_t>(static_cast<size_t>(cp_), kReadyBytes));
    std::vector<int32_t> seen;
    for (const int32_t window : c_.windows) {
      if (std::find(seen.begin(), seen.end(), window) != seen.end()) continue;
      seen.push_back(window);
      attention(window);
    }
    if (c_.layout.tp > 1) {
      std::vector<int64_t> bytes = computed_tokens([](RowStrategy) { return true; });
      for (int64_t& b : bytes) b *= c_.hidden * kFloat;
      add(CollectiveKind::kAllReduce, CollectiveGroup::kTp, std::move(bytes));
      logits();
    }
    return std::move(out_);
  }

 private:
  // New tokens [pos0, end()) of a row in this pass, with pos0 resident.
  struct Row {
    const PlanRow* plan;
    PassSegment segment;
    RowStrategy strategy() const { return segment.strategy; }
    int64_t pos0() const { return int64_t{plan->pos0} + segment.first; }
    int64_t end() const { return pos0() + segment.n; }
  };

  bool meets() const { return shape_.duplicates > 1 && !c_.replicated; }
  int64_t query_bytes() const { return int64_t{shape_.heads} * c_.k_dim * kFloat; }
  int64_t partial_bytes() const { return int64_t{shape_.heads} * (c_.v_dim + 1) * kFloat; }

  void add(CollectiveKind kind, CollectiveGroup group, std::vector<int64_t> bytes) {
    out_.push_back({kind, group, 0, std::move(bytes)});
  }
  void add_scaled(CollectiveKind kind, CollectiveGroup group, std::vector<int64_t> tokens, int64_t each) {
    for (int64_t& t : tokens) t *= each;
    add(kind, group, std::move(tokens));
  }

  // Positions [begin, end) of cp index m's share.
  int64_t owned(int32_t m, int64_t begin, int64_t end) const {
    return compute_->local_count(StripeIndex(m), end) - compute_->local_count(StripeIndex(m), begin);
  }

  // By cp index: new tokens of a row that it computes; of all rows of some strategies.
  std::vector<int64_t> computed(const Row& row) const {
    std::vector<int64_t> n;
    for (int32_t m = 0; m < cp_; ++m) {
      if (row.strategy() == RowStrategy::kGather) {
        n.push_back(row.segment.n);
      } else if (row.strategy() == RowStrategy::kLocal) {
        n.push_back(cp_ == 1 || home_member(*row.plan, c_) == m ? row.segment.n : 0);
      } else {
        n.push_back(owned(m, row.pos0(), row.end()));
      }
    }
    return n;
  }
  template <typename Which>
  std::vector<int64_t> computed_tokens(const Which& which, bool resident_only = false) const {
    std::vector<int64_t> sum(static_cast<size_t>(cp_), 0);
    for (const Row& row : rows_) {
      if (!which(row.strategy()) || (resident_only && row.pos0() == 0)) continue;
      const std::vector<int64_t> n = computed(row);
      for (size_t m = 0; m < sum.size(); ++m) sum[m] += n[m];
    }
    return sum;
  }

  void attention(int32_t window) {
    for (const Row& row : rows_)
      if (row.strategy() == RowStrategy::kPassQ) pass_q(row);
    const auto pass_kv = [](RowStrategy s) { return s == RowStrategy::kPassKv; };
    const std::vector<int64_t> context = computed_tokens(pass_kv, true);
    const bool meeting = meets() && std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) {
                           return pass_kv(row.strategy()) && row.pos0() > 0;
                         });
    if (meeting) add_scaled(CollectiveKind::kAllGather, CollectiveGroup::kDuplicates, context, query_bytes());
    for (const Row& row : rows_) rotate(row, window);
    if (meeting)
      add_scaled(CollectiveKind::kAllToAll, CollectiveGroup::kDuplicates, context,
                 partial_bytes() * shape_.duplicates);
    gather();
  }

  void pass_q(const Row& row) {
    if (meets() && row.pos0() == 0) return;
    const int64_t blocks = meets() ? shape_.duplicates : 1;
    const std::vector<int64_t> tokens = computed(row);
    if (meets()) add_scaled(CollectiveKind::kAllGather, CollectiveGroup::kDuplicates, tokens, query_bytes());
    for (const QueryShift& shift : query_shifts(tokens))
      add_scaled(CollectiveKind::kRingExchange, CollectiveGroup::kCp, shift.tokens,
                 blocks * (shift.partial ? partial_bytes() : query_bytes()));
    if (meets())
      add_scaled(CollectiveKind::kAllToAll, CollectiveGroup::kDuplicates, tokens, blocks * partial_bytes());
  }

  void rotate(const Row& row, int32_t window) {
    const bool pass_kv = row.strategy() == RowStrategy::kPassKv;
    if (pass_kv && !apart_) stored_shifts(row, window, row.end());
    if (pass_kv && meets() && row.pos0() > 0) stored_shifts(row, window, row.pos0());
    if (apart_ && (pass_kv || row.strategy() == RowStrategy::kPassQ)) {
      shifts(std::vector<std::vector<int64_t>>(1, computed(row)), CollectiveGroup::kCp);
    }
  }

  // Slots of the store of every stripe; the rings of the duplicates run side by side.
  void stored_shifts(const Row& row, int32_t window, int64_t length) {
    const int64_t hidden = window > 0 ? std::clamp<int64_t>(row.pos0() - window + 1, 0, length) : 0;
    std::vector<std::vector<int64_t>> by_duplicate(static_cast<size_t>(shape_.duplicates));
    for (int32_t s = 0; s < cp_ * shape_.duplicates; ++s) {
      const StripeIndex stripe(s);
      by_duplicate[static_cast<size_t>(s % shape_.duplicates)].push_back(
          c_.placement.local_count(stripe, length) - c_.placement.local_count(stripe, hidden));
    }
    shifts(by_duplicate, CollectiveGroup::kStripes);
  }

  // One ring or several in step; a ring with fewer rounds has none left to send.
  void shifts(const std::vector<std::vector<int64_t>>& rings, CollectiveGroup group) {
    const BlockBytes bytes{
        kSlotUnit, int64_t{shape_.kv_heads} * kSlotUnit * (c_.k_dim + c_.v_dim) * c_.kv_element_bytes};
    const int64_t block = (std::max<int64_t>(1, c_.ring_block) + kSlotUnit - 1) / kSlotUnit * kSlotUnit;
    std::vector<std::vector<std::vector<int64_t>>> sent;  // by ring, shift, member
    size_t most = 0;
    for (const auto& slots : rings) {
      sent.push_back(rotation_shifts(cp_, cut_rounds(slots, block)));
      most = std::max(most, sent.back().size());
    }
    for (size_t i = 0; i < most; ++i) {
      std::vector<int64_t> all;
      for (int32_t m = 0; m < cp_; ++m)
        for (const auto& ring : sent)
          all.push_back(i < ring.size() ? bytes(ring[i][static_cast<size_t>(m)]) : 0);
      add(CollectiveKind::kRingExchange, group, std::move(all));
    }
  }

  void gather() {
    const std::vector<int64_t> tokens =
        computed_tokens([](RowStrategy s) { return s == RowStrategy::kGather; });
    if (tokens.front() == 0) return;
    if (shape_.duplicates > 1) {
      add_scaled(CollectiveKind::kAllGather, CollectiveGroup::kDuplicates, tokens, query_bytes());
      add_scaled(CollectiveKind::kAllToAll, CollectiveGroup::kDuplicates, tokens,
                 partial_bytes() * shape_.duplicates);
    }
    if (cp_ > 1) add_scaled(CollectiveKind::kAllGather, CollectiveGroup::kCp, tokens, partial_bytes());
  }

  // Each tp rank's part of the vocabulary, padded to the largest, for the positions whose logits are wanted.
  void logits() {
    std::vector<int64_t> rows(static_cast<size_t>(cp_), 0);
    for (const Row& row : rows_) {
      if (row.plan->wanted == LogitsWanted::kNone) continue;
      const int64_t last = int64_t{row.plan->pos0} + row.plan->n - 1;
      const int64_t first = row.plan->wanted == LogitsWanted::kAll ? row.pos0() : std::max(row.pos0(), last);
      for (int32_t m = 0; m < cp_ && first < row.end(); ++m) {
        const bool home = cp_ == 1 || home_member(*row.plan, c_) == m;
        rows[static_cast<size_t>(m)] += row.strategy() != RowStrategy::kLocal ? owned(m, first, row.end())
                                        : home                                ? row.end() - first
                                                                              : 0;
      }
    }
    if (std::all_of(rows.begin(), rows.end(), [](int64_t n) { return n == 0; })) return;
    const int64_t part = (c_.vocab + c_.layout.tp - 1) / c_.layout.tp;
    add_scaled(CollectiveKind::kAllGather, CollectiveGroup::kTp, std::move(rows), part * kFloat);
  }

  const ScheduleConstants& c_;
  LayoutShape shape_;
  int32_t cp_;
  bool apart_;
  std::optional<Placement> compute_;
  std::vector<Row> rows_;
  std::vector<Collective> out_;
};

// Little endian whatever the host, so that ranks of different machines agree.
void put(std::string& bytes, uint64_t value) {
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

}  // namespace

std::vector<Collective> derive_schedule(const StepPlan& plan, const ScheduleConstants& constants) {
  Pass whole;
  for (size_t r = 0; r < plan.rows.size(); ++r)
    whole.push_back({r, 0, plan.rows[r].n, row_strategy(plan.rows[r], constants)});
  std::vector<Collective> schedule = derive_pass_schedule(plan, whole, constants);
  for (Collective& c : derive_token_schedule(plan, constants)) schedule.push_back(std::move(c));
  return schedule;
}

std::vector<Collective> derive_pass_schedule(const StepPlan& plan, const Pass& pass,
                                             const ScheduleConstants& constants) {
  return Derivation(plan, pass, constants).run();
}

std::vector<Collective> derive_token_schedule(const StepPlan& plan, const ScheduleConstants& constants) {
  const auto drawn =
      std::count_if(plan.rows.begin(), plan.rows.end(), [](const PlanRow& r) { return r.sample; });
  if (constants.layout.world() == 1 || drawn == 0) return {};
  const int64_t bytes = drawn * static_cast<int64_t>(sizeof(int32_t));
  return {{CollectiveKind::kAllGather, CollectiveGroup::kWorld, 0,
           std::vector<int64_t>(static_cast<size_t>(constants.layout.cp), bytes)}};
}

void seal(StepPlan& plan, const ScheduleConstants& constants, Strategy prefill) {
  for (PlanRow& row : plan.rows)
    if (row.strategy == Strategy::kAuto) row.strategy = prefill;
  const auto hash = schedule_hash(derive_schedule(plan, constants));
  std::copy(hash.begin(), hash.end(), std::begin(plan.schedule_hash));
}

std::array<uint64_t, 2> schedule_hash(std::span<const Collective> schedule) {
  if (schedule.empty()) return {0, 0};
  std::string bytes;
  for (const Collective& c : schedule) {
    put(bytes, static_cast<uint64_t>(c.kind));
    put(bytes, static_cast<uint64_t>(c.group));
    put(bytes, static_cast<uint64_t>(c.root));
    put(bytes, c.bytes.size());
    for (const int64_t sent : c.bytes) put(bytes, static_cast<uint64_t>(sent));
  }
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace lariat
