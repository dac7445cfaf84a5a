// lariat worker: one rank of a group, started by the head.
#include <fmt/core.h>

#include <filesystem>

#include "app/commands.h"
#include "app/options.h"
#include "app/rank_launch.h"
#include "app/rank_process.h"
#include "base/log.h"
#include "worker/worker_main.h"

namespace lariat {

Result<int> cmd_worker(const OptionValues& values) {
  Faults faults(values);
  const ModelOptions model = read_model_options(values, faults);
  const LayoutOptions layout = read_layout_options(values, faults);
  WorkerOptions options;
  options.address = read_text(values, "listen", "");
  if (options.address.empty()) faults.add("--listen is needed; 'lariat serve' starts its ranks itself");
  // Plain gRPC; whoever reaches it commands the rank.
  if (!options.address.empty() && !options.address.starts_with("unix:"))
    faults.add(
        fmt::format("--listen: '{}' is not unix:PATH; ranks are on their head's machine in this version",
                    options.address));
  options.rank.rank = static_cast<int32_t>(read_int(values, "rank", 0, {0, 1 << 20}, faults));
  options.rank.world = layout.layout().world();
  options.rank.build_id = build_id();
  options.rank.stall_timeout = std::chrono::milliseconds(
      static_cast<int64_t>(read_seconds(values, "stall-timeout", 300, 0.1, faults) * 1000));
  options.head_pid = static_cast<pid_t>(read_int(values, "parent", 0, {0, INT32_MAX}, faults));
  const int64_t epoch = read_int(values, "epoch", 1, {0, INT64_MAX}, faults);
  const std::string group_dir = read_text(values, "group-dir", "");
  if (options.rank.rank >= options.rank.world) {
    faults.add(fmt::format("--rank {}: the layout {} has ranks 0 to {}", options.rank.rank,
                           layout_name(layout), options.rank.world - 1));
  }
  if (options.rank.world > 1 && !std::filesystem::is_directory(group_dir))
    faults.add(fmt::format("--group-dir: '{}' is no folder; the ranks of a group meet there", group_dir));
  if (!faults.empty()) return faults.error();
  set_log_name("rank " + std::to_string(options.rank.rank));
  const RankProcessOptions process{.rank = Rank(options.rank.rank),
                                   .epoch = Epoch(static_cast<uint64_t>(epoch)),
                                   .group_dir = group_dir,
                                   .poison = read_flag(values, "poison")};
  return run_worker(options, [&](const LoadProgressFn& progress) {
    return load_rank_process(model, layout, process, progress);
  });
}

}  // namespace lariat
