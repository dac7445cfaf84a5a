// Engines whose ranks are processes of the test rank program.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "head/engine_impl.h"
#include "head/process_link.h"
#include "head/rank_group.h"

namespace lariat {

struct ProcessEngineOptions {
  EngineOptions engine;
  RankGroupOptions group;
  std::string program;  // the test rank
  std::function<std::vector<std::string>(Epoch epoch)> args = [](Epoch) {
    return std::vector<std::string>();
  };
};

inline Result<std::unique_ptr<EngineImpl>> make_process_engine(const ProcessEngineOptions& options) {
  ProcessRankOptions ranks;
  ranks.path = options.program;
  const int32_t world = options.group.world;
  ranks.args = [options, world](int32_t rank, Epoch epoch, const std::string& address) {
    std::vector<std::string> args = {"test-rank", "address=" + address, fmt::format("rank={}", rank),
                                     fmt::format("world={}", world), fmt::format("head={}", getpid())};
    for (std::string& arg : options.args(epoch)) args.push_back(std::move(arg));
    return args;
  };
  LARIAT_ASSIGN(RankLinkFactory factory, make_process_ranks(std::move(ranks)));
  auto group = std::make_unique<RankGroup>(options.group, std::move(factory));
  return std::make_unique<EngineImpl>(options.engine, std::move(group), nullptr);
}

}  // namespace lariat
