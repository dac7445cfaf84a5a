#include "plan/net_bytes.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "plan/schedule_hash.h"

namespace lariat {
namespace {

// What one collective puts on the wire, over all groups of its kind.
int64_t wire_bytes(const Collective& c, const Layout& layout, int32_t duplicates) {
  const int64_t sum = std::accumulate(c.bytes.begin(), c.bytes.end(), int64_t{0});
  const int64_t per_rank = sum * layout.tp;  // `bytes` is by cp index: every tp rank of it sends as much
  const auto members = [&]() -> int64_t {
    switch (c.group) {
      case CollectiveGroup::kWorld:
        return layout.world();
      case CollectiveGroup::kTp:
        return layout.tp;
      case CollectiveGroup::kCp:
      case CollectiveGroup::kStripes:
        return layout.cp;
      case CollectiveGroup::kDuplicates:
        return duplicates;
    }
    return 1;
  }();
  switch (c.kind) {
    case CollectiveKind::kRingExchange:
      // By stripe: the tp / R sets of KV heads each rotate their own.
      return c.group == CollectiveGroup::kStripes ? sum * (layout.tp / duplicates) : per_rank;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllReduce:
      return per_rank * (members - 1);
    case CollectiveKind::kAllToAll:
      return per_rank / members * (members - 1);
    case CollectiveKind::kBroadcast:
      return sum * (members - 1);
  }
  return 0;
}

// Layer by layer, then what a pass has once.
int64_t pass_net_bytes(const StepPlan& plan, const Pass& pass, const ScheduleConstants& constants) {
  const int32_t duplicates = layout_shape(constants.layout, constants.heads, constants.kv_heads).duplicates;
  std::map<int32_t, int64_t> layers;  // by window
  for (const int32_t window : constants.windows) ++layers[window];
  int64_t total = 0;
  int64_t once = 0;
  for (const auto& [window, count] : layers) {
    ScheduleConstants one = constants;
    one.windows = {window};
    once = 0;
    for (const Collective& c : derive_pass_schedule(plan, pass, one)) {
      const int64_t bytes = wire_bytes(c, constants.layout, duplicates);
      if (c.kind == CollectiveKind::kAllReduce) {
        // Behind attention and MLP of each layer, and of the split embedding.
        once += bytes * (2 * static_cast<int64_t>(constants.windows.size()) + 1);
      } else if (c.group == CollectiveGroup::kWorld || c.group == CollectiveGroup::kTp) {
        once += bytes;
      } else {
        total += bytes * count;
      }
    }
  }
  return total + once;
}

StepPlan one_row(int64_t pos0, int64_t n, Strategy strategy, bool sample) {
  StepPlan plan;
  PlanRow& row = plan.rows.emplace_back();
  row.pos0 = static_cast<int32_t>(pos0);
  row.n = static_cast<int32_t>(n);
  row.strategy = strategy;
  row.sample = sample;
  row.wanted = sample ? LogitsWanted::kLast : LogitsWanted::kNone;
  return plan;
}

}  // namespace

int64_t step_net_bytes(const StepPlan& plan, const ScheduleConstants& constants, int64_t pass_tokens) {
  if (constants.layout.world() == 1) return 0;
  const auto compute = ComputePlacement::create(constants);
  LARIAT_CHECK(compute.ok(), "{}", compute.error().message);
  int64_t total = 0;
  for (const Pass& pass : cut_passes(plan, *compute, pass_tokens))
    total += pass_net_bytes(plan, pass, constants);
  for (const Collective& c : derive_token_schedule(plan, constants))
    total += wire_bytes(c, constants.layout, 1);
  return total;
}

int64_t prefill_net_bytes(const ScheduleConstants& constants, const PromptSteps& prompt) {
  if (constants.layout.world() == 1) return 0;
  int64_t total = 0;
  for (int64_t pos = 0; pos < prompt.tokens;) {
    const int64_t left = prompt.tokens - pos;
    const int64_t n = prompt.chunk > 0 ? std::min(prompt.chunk, left) : left;
    total += step_net_bytes(one_row(pos, n, prompt.strategy, n == left), constants, prompt.pass_tokens);
    pos += n;
  }
  return total;
}

int64_t decode_net_bytes(const ScheduleConstants& constants) {
  return step_net_bytes(one_row(0, 1, Strategy::kGather, true), constants, 1);
}

}  // namespace lariat
