#include "app/rank_launch.h"

#include <fmt/core.h>
#include <unistd.h>

#include <vector>

#include "head/process_link.h"

namespace lariat {
namespace {

// All of a rank's command line but its number, its epoch and where it listens.
std::vector<std::string> common_args(const RankLaunch& launch) {
  const ModelOptions& model = launch.model;
  std::vector<std::string> args{"lariat", "worker"};
  if (model.random_weights.empty()) {
    args.push_back(model.model);
  } else {
    args.insert(args.end(), {"--random-weights", model.random_weights.string()});
  }
  if (!model.model_dirs.empty()) args.insert(args.end(), {"--models-dir", model.model_dirs.front().string()});
  const std::vector<std::string> flags = layout_flags(launch.layout);
  args.insert(args.end(), flags.begin(), flags.end());
  const double stall_s = std::chrono::duration<double>(launch.stall_timeout).count();
  args.insert(args.end(),
              {"--stall-timeout", fmt::format("{}", stall_s), "--parent", std::to_string(getpid())});
  if (launch.layout.layout().world() > 1) args.insert(args.end(), {"--group-dir", launch.group_dir.string()});
  if (launch.poison) args.emplace_back("--poison");
  return args;
}

}  // namespace

Result<std::unique_ptr<RankGroup>> launch_ranks(const RankLaunch& launch) {
  ProcessRankOptions processes;
  // Below a folder that the next start removes if this head is killed before a rank is connected.
  if (launch.group_dir.string().size() <= kSocketRootBytesMax)
    processes.socket_root = launch.group_dir.string();
  processes.args = [common = common_args(launch)](int32_t rank, Epoch epoch, const std::string& address) {
    std::vector<std::string> args = common;
    args.insert(args.end(), {"--rank", std::to_string(rank), "--epoch", std::to_string(epoch.get()),
                             "--listen", address});
    return args;
  };
  LARIAT_ASSIGN(RankLinkFactory factory, make_process_ranks(std::move(processes)));
  RankGroupOptions group;
  group.world = launch.layout.layout().world();
  group.build_id = build_id();
  group.heartbeat_timeout = launch.heartbeat_timeout;
  group.step_timeout = launch.stall_timeout + std::chrono::seconds(10);
  return std::make_unique<RankGroup>(group, std::move(factory));
}

}  // namespace lariat
