// lariat plan: what fits, by the arithmetic that serving allocates by.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands.h"
#include "app/model_session.h"
#include "plan/net_bytes.h"
#include "plan/work_share.h"

namespace lariat {
namespace {

// What is known of a plan beside what fits: how ranks share the work, and bytes between them for one prompt
// of the largest context and for one decoded token.
struct Outlook {
  int64_t prefill_bytes = 0;
  int64_t decode_bytes = 0;
  std::vector<double> shares;     // of a prompt's work, by cp index
  std::vector<Refusal> warnings;  // what is granted and may not be meant
};

// A pool that ends rows before the context that is wanted.
std::optional<Refusal> short_pool(const Capacity& c, const LayoutOptions& layout) {
  const std::string lowered = lowered_context(layout, c);
  if (!c.refusals.empty() || lowered.empty()) return std::nullopt;
  return Refusal{"kv-memory", lowered, std::to_string(kv_bytes_of_context(c))};
}

std::optional<Refusal> uneven_shares(const std::vector<double>& shares, const LayoutOptions& layout) {
  const auto brake = find_brake(shares);
  if (!brake) return std::nullopt;
  const int32_t first = brake->cp_index * layout.tp;
  const std::string who = layout.tp == 1
                              ? fmt::format("rank {} computes", first)
                              : fmt::format("ranks {} to {} compute", first, first + layout.tp - 1);
  return Refusal{"rank-shares",
                 fmt::format("{} {:.0f} % of the positions: a prompt runs at {:.2f} of the speed of equal "
                             "shares, if all ranks are equally fast",
                             who, 100 * brake->share, brake->speed),
                 fmt::format("{}", fmt::join(std::vector<int32_t>(shares.size(), 1), ","))};
}

Result<Outlook> look_ahead(const DecoderConfig& config, const Capacity& c, const LayoutOptions& layout) {
  Outlook out;
  if (c.ranks.empty()) return out;
  LARIAT_ASSIGN(const ScheduleConstants constants, schedule_constants(config, layout));
  out.prefill_bytes = prefill_net_bytes(constants, {.tokens = c.max_context,
                                                    .chunk = layout.chunk_tokens,
                                                    .pass_tokens = resolved_plan(layout, c).pass_tokens,
                                                    .strategy = layout.strategy});
  out.decode_bytes = decode_net_bytes(constants);
  out.shares = work_shares(constants.placement, shape_of(config, layout.layout()).duplicates);
  for (auto& warning : {short_pool(c, layout), uneven_shares(out.shares, layout)})
    if (warning) out.warnings.push_back(*warning);
  return out;
}

nlohmann::ordered_json refusals_json(const std::vector<Refusal>& refusals) {
  auto out = nlohmann::ordered_json::array();
  for (const Refusal& r : refusals)
    out.push_back({{"setting", r.setting}, {"reason", r.reason}, {"nearest", r.nearest}});
  return out;
}

double mib(int64_t bytes) {
  return static_cast<double>(bytes) / 0x1p20;
}

void print_json(const Capacity& c, const Outlook& outlook, const LayoutOptions& layout) {
  nlohmann::ordered_json out;
  out["layout"] = layout_name(layout);
  out["ranks"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < c.ranks.size(); ++i) {
    const RankCapacity& r = c.ranks[i];
    out["ranks"].push_back({{"weights_bytes", r.weights_bytes},
                            {"kv_bytes_per_token", r.kv_bytes_per_token},
                            {"kv_bytes", r.kv_bytes},
                            {"workspace_bytes", r.workspace_bytes},
                            {"total_bytes", r.total_bytes},
                            {"work_share", outlook.shares[i / static_cast<size_t>(layout.tp)] / layout.tp}});
  }
  out["page_tokens"] = c.page_tokens;
  out["pages_total"] = c.pages_total;
  out["max_context"] = c.max_context;
  out["max_concurrency"] = c.max_concurrency;
  out["prefill_net_bytes"] = outlook.prefill_bytes;
  out["decode_net_bytes_per_token"] = outlook.decode_bytes;
  out["prefill_speed_of_equal_shares"] = nullptr;  // not known of ranks that cannot be placed
  if (!outlook.shares.empty()) {
    const auto brake = find_brake(outlook.shares);
    out["prefill_speed_of_equal_shares"] = brake ? brake->speed : 1.0;
  }
  out["warnings"] = refusals_json(outlook.warnings);
  out["refusals"] = refusals_json(c.refusals);
  fmt::print("{}\n", out.dump());
}

void print_text(const Capacity& c, const Outlook& outlook, const LayoutOptions& layout) {
  fmt::print("layout {}\n", layout_name(layout));
  for (size_t i = 0; i < c.ranks.size(); ++i) {
    const RankCapacity& r = c.ranks[i];
    fmt::print(
        "rank {}: weights {:.1f} MiB, KV {:.1f} MiB ({} bytes a token), workspace {:.1f} MiB, total {:.1f} "
        "MiB\n",
        i, mib(r.weights_bytes), mib(r.kv_bytes), r.kv_bytes_per_token, mib(r.workspace_bytes),
        mib(r.total_bytes));
  }
  fmt::print("pages: {} of {} tokens\nlargest context {} tokens, {} at once\n", c.pages_total, c.page_tokens,
             c.max_context, c.max_concurrency);
  if (layout.layout().world() > 1) {
    fmt::print(
        "network: {:.1f} MiB for a prompt of that length, {:.1f} KiB a decoded token, over all ranks\n",
        mib(outlook.prefill_bytes), static_cast<double>(outlook.decode_bytes) / 1024);
  }
  for (const Refusal& w : outlook.warnings)
    fmt::print("warning: --{}: {}; nearest that does not: {}\n", w.setting, w.reason, w.nearest);
  for (const Refusal& r : c.refusals)
    fmt::print("refused: --{}: {}; nearest that works: {}\n", r.setting, r.reason, r.nearest);
}

// As every command that would load this ends: 3 if only memory is short, 2 for other settings.
int exit_code(const Capacity& c) {
  const Status fits = check_fits(c);
  if (fits.ok()) return 0;
  return fits.error().code == Errc::kResourceExhausted ? 3 : 2;
}

}  // namespace

Result<int> cmd_plan(const OptionValues& values) {
  Faults faults(values);
  const ModelOptions model_options = read_model_options(values, faults);
  const LayoutOptions layout = read_layout_options(values, faults);
  if (!faults.empty()) return faults.error();
  LARIAT_ASSIGN(const OpenModel model, open_model(model_options, layout.dtype));
  LARIAT_ASSIGN(const Capacity c, plan_capacity(model, layout));
  LARIAT_ASSIGN(const Outlook known, look_ahead(model.files.config, c, layout));
  if (read_flag(values, "json")) {
    print_json(c, known, layout);
  } else {
    print_text(c, known, layout);
  }
  return exit_code(c);
}

}  // namespace lariat
