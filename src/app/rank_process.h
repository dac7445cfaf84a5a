// What a worker process runs: its rank's executor, its groups over Gloo, its share of weights that are packed
// once.
#pragma once

#include <filesystem>
#include <memory>

#include "app/model_session.h"
#include "worker/step_executor.h"

namespace lariat {

struct RankProcessOptions {
  Rank rank;
  Epoch epoch;
  std::filesystem::path group_dir;  // private to one head's ranks; empty with one rank
  bool poison = false;              // all KV starts as NaN
};

// Meets the other ranks first (they start together), then takes the weights: packed here, or mapped from the
// rank that was first. Errors: a rank that did not come, by name; the model's; memory.
Result<std::unique_ptr<StepExecutor>> load_rank_process(const ModelOptions& model,
                                                        const LayoutOptions& layout,
                                                        const RankProcessOptions& options,
                                                        const LoadProgressFn& progress);

}  // namespace lariat
