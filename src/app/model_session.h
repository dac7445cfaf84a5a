// From options to a model that runs: files, weights, memory plan, executor. What serve's workers, run, verify
// and bench share.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/options.h"
#include "app/rank_placement.h"
#include "base/result.h"
#include "model/config.h"
#include "model/model_files.h"
#include "plan/capacity.h"
#include "weights/tensor_source.h"
#include "worker/model_executor.h"

namespace lariat {

// A model's files, opened and checked; no weights are in memory yet.
struct OpenModel {
  ModelFiles files;
  std::unique_ptr<TensorSource> source;
};

// Finds the files and reads the configs only. `dtype`: the type of random weights.
Result<ModelFiles> open_files(const ModelOptions& options, std::optional<DType> dtype);

// open_files(), and the weights' headers checked against the config.
Result<OpenModel> open_model(const ModelOptions& options, std::optional<DType> dtype);

// Tells one set of weights from another; the hello carries it. Reads a few pages of every tensor: to be asked
// before a load, which drops them.
using WeightsId = std::array<uint64_t, 2>;
WeightsId weights_id(const OpenModel& model);

// Whether and how the model fits, with every refusal. The arithmetic of `plan`, and of whatever allocates.
// Where the ranks cannot be placed there are no numbers of ranks, and the rest is judged by the nearest
// layout.
Result<Capacity> plan_capacity(const OpenModel& model, const LayoutOptions& options);

// Numbers that are settled before anything is allocated; the same for the head and every worker.
struct ResolvedPlan {
  int32_t context = 0;
  int32_t page_tokens = 0;  // rounded up to the placement's period
  int32_t pages_total = 0;
  int32_t pass_tokens = 0;          // of one forward pass at most
  std::vector<int64_t> page_bytes;  // by rank: K and V of one page
};

// Ok without refusals; else all of them in one error: kResourceExhausted if only memory is short (exit 3),
// kInvalidArgument otherwise (exit 2).
Status check_fits(const Capacity& capacity);

// One line for the terminal if the pool holds less than the context wanted: both numbers and the flag that
// helps. Empty if the context is whole.
std::string lowered_context(const LayoutOptions& options, const Capacity& capacity);

// The numbers of a capacity without refusals.
ResolvedPlan resolved_plan(const LayoutOptions& layout, const Capacity& capacity);
// plan_capacity(), checked.
Result<ResolvedPlan> resolve_plan(const OpenModel& model, const LayoutOptions& layout);

// The options by which another process resolves the same plan, whatever memory is free by then.
LayoutOptions settled_layout(const LayoutOptions& layout, const ResolvedPlan& plan);

struct ExecutorExtras {
  bool poison = false;
  WeightsProgress progress;
};

// What every rank, and the head, derive a step's exchanges from.
Result<ScheduleConstants> schedule_constants(const DecoderConfig& config, const LayoutOptions& options);

// Where `rank` stands under the layout. `groups` may be null with one rank.
Result<RankPlace> rank_place(const OpenModel& model, const LayoutOptions& options, Rank rank,
                             RankGroups* groups);

struct ExecutorParts {
  std::shared_ptr<const DecoderWeights> weights;  // of the place's tp shard
  WeightsId id{};
  std::unique_ptr<Stream> stream;
  RankPlace place;
  bool poison = false;
};

Result<std::unique_ptr<ModelExecutor>> make_executor(const OpenModel& model, const LayoutOptions& options,
                                                     const ResolvedPlan& plan, ExecutorParts parts);

}  // namespace lariat
