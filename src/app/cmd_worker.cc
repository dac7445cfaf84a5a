// lariat worker: one rank of a group, started by the head.
#include "app/commands.h"
#include "app/model_session.h"
#include "app/options.h"
#include "app/serving.h"
#include "base/log.h"
#include "worker/worker_main.h"

namespace lariat {
namespace {

Result<std::unique_ptr<StepExecutor>> load_step_executor(const ModelOptions& model_options,
                                                         const LayoutOptions& layout, Rank rank,
                                                         const LoadProgressFn& progress) {
  progress(0, "opening the model");
  LARIAT_ASSIGN(const OpenModel model, open_model(model_options, layout.dtype));
  LARIAT_ASSIGN(const ResolvedPlan plan, resolve_plan(model, layout));
  const auto loaded = [&](int64_t done, int64_t total) {
    progress(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total)), "packing weights");
  };
  LARIAT_ASSIGN(auto executor, load_rank(model, layout, plan, rank, {.poison = false, .progress = loaded}));
  return std::unique_ptr<StepExecutor>(std::move(executor));
}

}  // namespace

Result<int> cmd_worker(const OptionValues& values) {
  Faults faults;
  const ModelOptions model = read_model_options(values, faults);
  const LayoutOptions layout = read_layout_options(values, faults);
  WorkerOptions options;
  options.address = read_text(values, "listen", "");
  if (options.address.empty()) faults.add("--listen is needed; 'lariat serve' starts its ranks itself");
  options.rank.rank = static_cast<int32_t>(read_int(values, "rank", 0, {0, 1 << 20}, faults));
  options.rank.world = layout.tp * layout.cp;
  options.rank.build_id = build_id();
  options.rank.stall_timeout = std::chrono::milliseconds(
      static_cast<int64_t>(read_seconds(values, "stall-timeout", 300, 0.1, faults) * 1000));
  options.head_pid = static_cast<pid_t>(read_int(values, "parent", 0, {0, INT32_MAX}, faults));
  if (!faults.empty()) return faults.error();
  set_log_name("rank " + std::to_string(options.rank.rank));
  return run_worker(options, [&](const LoadProgressFn& progress) {
    return load_step_executor(model, layout, Rank(options.rank.rank), progress);
  });
}

}  // namespace lariat
