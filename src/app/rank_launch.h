// Ranks as processes of this program, each started by a command line that says what it is.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "app/options.h"
#include "base/result.h"
#include "head/rank_group.h"

namespace lariat {

struct RankLaunch {
  ModelOptions model;
  LayoutOptions layout;  // settled: a rank resolves the same plan because it is told the numbers
  std::chrono::milliseconds stall_timeout{300'000};
  std::chrono::milliseconds heartbeat_timeout{3'000};
  // A private folder of this group: sockets until the ranks are connected, and where several ranks meet.
  std::filesystem::path group_dir;
  bool poison = false;
};

// The group, not yet formed. A rank that is stuck in its own compute ends by its own watchdog first, which
// leaves a stack dump; the group's deadline for a step comes ten seconds later.
Result<std::unique_ptr<RankGroup>> launch_ranks(const RankLaunch& launch);

// Ids of head and ranks of one build; a rank of another is refused.
std::string build_id();

}  // namespace lariat
