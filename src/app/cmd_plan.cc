// lariat plan: what fits, by the arithmetic that serving allocates by.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/model_session.h"
#include "plan/net_bytes.h"

namespace lariat {
namespace {

// Between ranks: one prompt of the largest context, one decoded token.
struct NetBytes {
  int64_t prefill = 0;
  int64_t decode = 0;
};

Result<NetBytes> net_bytes(const DecoderConfig& config, const Capacity& c, const LayoutOptions& layout) {
  LARIAT_ASSIGN(const ScheduleConstants constants, schedule_constants(config, layout));
  return NetBytes{prefill_net_bytes(constants, {.tokens = c.max_context,
                                                .chunk = layout.chunk_tokens,
                                                .pass_tokens = resolved_plan(layout, c).pass_tokens,
                                                .strategy = layout.strategy}),
                  decode_net_bytes(constants)};
}

double mib(int64_t bytes) {
  return static_cast<double>(bytes) / 0x1p20;
}

void print_json(const Capacity& c, const NetBytes& net, const LayoutOptions& layout) {
  nlohmann::ordered_json out;
  out["layout"] = layout_name(layout);
  out["ranks"] = nlohmann::ordered_json::array();
  for (const RankCapacity& r : c.ranks) {
    out["ranks"].push_back({{"weights_bytes", r.weights_bytes},
                            {"kv_bytes_per_token", r.kv_bytes_per_token},
                            {"kv_bytes", r.kv_bytes},
                            {"workspace_bytes", r.workspace_bytes},
                            {"total_bytes", r.total_bytes}});
  }
  out["page_tokens"] = c.page_tokens;
  out["pages_total"] = c.pages_total;
  out["max_context"] = c.max_context;
  out["max_concurrency"] = c.max_concurrency;
  out["prefill_net_bytes"] = net.prefill;
  out["decode_net_bytes_per_token"] = net.decode;
  out["refusals"] = nlohmann::ordered_json::array();
  for (const Refusal& r : c.refusals) {
    out["refusals"].push_back({{"setting", r.setting}, {"reason", r.reason}, {"nearest", r.nearest}});
  }
  fmt::print("{}\n", out.dump());
}

void print_text(const Capacity& c, const NetBytes& net, const LayoutOptions& layout) {
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
        mib(net.prefill), static_cast<double>(net.decode) / 1024);
  }
  if (const std::string lowered = lowered_context(layout, c); c.refusals.empty() && !lowered.empty())
    fmt::print("note: {}\n", lowered);
  for (const Refusal& r : c.refusals)
    fmt::print("refused: --{}: {}; nearest that works: {}\n", r.setting, r.reason, r.nearest);
}

}  // namespace

Result<int> cmd_plan(const OptionValues& values) {
  Faults faults(values);
  const ModelOptions model_options = read_model_options(values, faults);
  const LayoutOptions layout = read_layout_options(values, faults);
  if (!faults.empty()) return faults.error();
  LARIAT_ASSIGN(const OpenModel model, open_model(model_options, layout.dtype));
  LARIAT_ASSIGN(const Capacity c, plan_capacity(model, layout));
  NetBytes net;
  if (!c.ranks.empty()) {
    LARIAT_ASSIGN(net, net_bytes(model.files.config, c, layout));
  }
  if (read_flag(values, "json")) {
    print_json(c, net, layout);
  } else {
    print_text(c, net, layout);
  }
  return c.refusals.empty() ? 0 : 3;
}

}  // namespace lariat
