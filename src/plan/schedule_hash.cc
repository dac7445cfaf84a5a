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

// Writes the collectives of one step.
class Derivation {
 public:
  Derivation(const StepPlan& plan, const ScheduleConstants& constants)
      : c_(constants),
        shape_(layout_shape(constants.layout, constants.heads, constants.kv_heads)),
        cp_(constants.layout.cp),
        apart_(shape_.duplicates > 1 || constants.replicated) {
    std::vector<int32_t> pattern;
    for (const int32_t stripe : c_.placement.pattern()) pattern.push_back(stripe / shape_.duplicates);
    auto compute = Placement::create(std::move(pattern), c_.placement.interleave());
    LARIAT_CHECK(compute.ok(), "{}", compute.error().message);
    compute_.emplace(std::move(compute).value());
    for (const PlanRow& row : plan.rows) rows_.push_back({&row, row_strategy(row, c_)});
  }

  std::vector<Collective> run() {
    if (c_.layout.world() == 1) return {};
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
    }
    return std::move(out_);
  }

 private:
  struct Row {
    const PlanRow* plan;
    RowStrategy strategy;
    int64_t end() const { return int64_t{plan->pos0} + plan->n; }
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

  // By cp index: new tokens of a row that it computes; of all rows of some strategies.
  std::vector<int64_t> computed(const Row& row) const {
    std::vector<int64_t> n;
    for (int32_t m = 0; m < cp_; ++m) {
      if (row.strategy == RowStrategy::kGather) {
        n.push_back(row.plan->n);
      } else if (row.strategy == RowStrategy::kLocal) {
        n.push_back(cp_ == 1 || home_member(*row.plan, c_) == m ? row.plan->n : 0);
      } else {
        n.push_back(compute_->local_count(StripeIndex(m), row.end()) -
                    compute_->local_count(StripeIndex(m), row.plan->pos0));
      }
    }
    return n;
  }
  template <typename Which>
  std::vector<int64_t> computed_tokens(const Which& which, bool resident_only = false) const {
    std::vector<int64_t> sum(static_cast<size_t>(cp_), 0);
    for (const Row& row : rows_) {
      if (!which(row.strategy) || (resident_only && row.plan->pos0 == 0)) continue;
      const std::vector<int64_t> n = computed(row);
      for (size_t m = 0; m < sum.size(); ++m) sum[m] += n[m];
    }
    return sum;
  }

  void attention(int32_t window) {
    for (const Row& row : rows_)
      if (row.strategy == RowStrategy::kPassQ) pass_q(row);
    const auto pass_kv = [](RowStrategy s) { return s == RowStrategy::kPassKv; };
    const std::vector<int64_t> context = computed_tokens(pass_kv, true);
    const bool meeting = meets() && std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) {
                           return pass_kv(row.strategy) && row.plan->pos0 > 0;
                         });
    if (meeting) add_scaled(CollectiveKind::kAllGather, CollectiveGroup::kDuplicates, context, query_bytes());
    for (const Row& row : rows_) rotate(row, window);
    if (meeting)
      add_scaled(CollectiveKind::kAllToAll, CollectiveGroup::kDuplicates, context,
                 partial_bytes() * shape_.duplicates);
    gather();
  }

  void pass_q(const Row& row) {
    if (meets() && row.plan->pos0 == 0) return;
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
    const bool pass_kv = row.strategy == RowStrategy::kPassKv;
    if (pass_kv && !apart_) stored_shifts(row, window, row.end());
    if (pass_kv && meets() && row.plan->pos0 > 0) stored_shifts(row, window, row.plan->pos0);
    if (apart_ && (pass_kv || row.strategy == RowStrategy::kPassQ)) {
      shifts(std::vector<std::vector<int64_t>>(1, computed(row)), CollectiveGroup::kCp);
    }
  }

  // Slots of the store of every stripe; the rings of the duplicates run side by side.
  void stored_shifts(const Row& row, int32_t window, int64_t length) {
    const int64_t hidden =
        window > 0 ? std::clamp<int64_t>(int64_t{row.plan->pos0} - window + 1, 0, length) : 0;
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
  return Derivation(plan, constants).run();
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
