// lariat verify: the command around verify_model.
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/verify.h"

namespace lariat {
namespace {

void print_json(const VerifyReport& report, const LayoutOptions& layout, double seconds) {
  nlohmann::ordered_json out;
  if (std::isfinite(report.max_error)) {
    out["max_abs_logit_error"] = report.max_error;
  } else {
    out["max_abs_logit_error"] = nullptr;  // NaN or infinity: JSON has neither
  }
  out["greedy_match"] = report.greedy_match;
  out["tokens"] = report.tokens;
  out["layout"] = layout_name(layout);
  out["seconds"] = seconds;
  fmt::print("{}\n", out.dump());
}

}  // namespace

Result<int> cmd_verify(const OptionValues& values) {
  Faults faults(values);
  const ModelOptions model_options = read_model_options(values, faults);
  const LayoutOptions layout = read_layout_options(values, faults);
  const RankTransport transport = read_rank_transport(
      values, layout.layout().world() > 1 ? RankTransport::kGloo : RankTransport::kLocal, faults);
  const std::string golden = read_text(values, "golden", "");
  if (golden.empty())
    faults.add("--golden FILE is needed: a safetensors file with input_ids, logits and greedy");
  if (!faults.empty()) return faults.error();

  LARIAT_ASSIGN(const OpenModel model, open_model(model_options, layout.dtype));
  const auto start = std::chrono::steady_clock::now();
  ProgressBar bar("loading");
  const RankSetFactory load =
      rank_sets(transport, {.model = model_options, .poison = read_flag(values, "poison"), .progress = &bar});
  LARIAT_ASSIGN(const VerifyReport report, verify_model(model, layout, golden, load));
  bar.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  if (read_flag(values, "json")) {
    print_json(report, layout, seconds);
  } else {
    fmt::print("{}: max abs logit error {:.3g} (limit {:.0e}), greedy {}, {} tokens, {}, {:.2f} s\n",
               report.passed() ? "ok" : "FAILED", report.max_error, kLogitErrorMax,
               report.greedy_match ? "identical" : "differs", report.tokens, layout_name(layout), seconds);
  }
  if (!report.greedy_match) fmt::print(stderr, "{}\n", report.mismatch);
  return report.passed() ? 0 : 1;
}

}  // namespace lariat
