#include "app/rank_process.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/gloo/gloo_groups.h"
#include "weights/shared_weights.h"
#include "worker/worker_main.h"

namespace lariat {
namespace {

// Ranks start within moments of each other, but a loaded machine may be slow to run them.
constexpr std::chrono::milliseconds kMeetTimeout{60'000};

// Ranks that are killed while they form leave addresses behind. Nothing of an earlier epoch lives when a
// later one begins.
void clear_earlier_epochs(const std::filesystem::path& dir, const std::string& prefix) {
  std::error_code failed;
  std::vector<std::filesystem::path> stale;
  for (std::filesystem::directory_iterator it(dir, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("epoch-") && !name.starts_with(prefix + ".")) stale.push_back(it->path());
  }
  for (const auto& path : stale) std::filesystem::remove(path, failed);
}

class RankProcess final : public StepExecutor {
 public:
  Hello hello() const override { return executor_->hello(); }
  PlanLimits limits() const override { return executor_->limits(); }

  Result<StepOutcome> run(const StepPlan& plan, const ProgressFn& progress) override {
    return executor_->run(plan, progress);
  }
  Status health() override { return executor_->health(); }

  Status meet(const LayoutOptions& options, const DecoderConfig& c, const RankProcessOptions& process) {
    const Layout layout = options.layout();
    if (layout.world() == 1) return Ok{};
    GlooOptions gloo;
    gloo.store_dir = process.group_dir;
    gloo.prefix = fmt::format("epoch-{}", process.epoch.get());
    if (process.rank == Rank(0)) clear_earlier_epochs(gloo.store_dir, gloo.prefix);
    gloo.layout = layout;
    gloo.duplicates = shape_of(c, layout).duplicates;
    gloo.rank = process.rank;
    gloo.connect_timeout = kMeetTimeout;
    // The others have given up on this rank long before its own watchdog would: the head replaces it, and
    // what it was stuck in is worth knowing.
    gloo.on_blamed = [](const Error& why) { end_stalled(why.message); };
    auto groups = make_gloo_rank_groups(gloo);
    if (!groups.ok()) return groups.error().in("meeting the other ranks");
    groups_ = std::make_unique<RankGroups>(std::move(groups).value());
    return Ok{};
  }

  Status load(const OpenModel& model, const LayoutOptions& options, const RankProcessOptions& process,
              const LoadProgressFn& progress) {
    LARIAT_ASSIGN(const ResolvedPlan plan, resolve_plan(model, options));
    const WeightsId id = weights_id(model);
    LARIAT_ASSIGN(RankPlace place, rank_place(model, options, process.rank, groups_.get()));
    const DecoderConfig& c = model.files.config;
    const DecoderShard shard = shard_of(c, options.tp, place.t());
    auto stream = Stream::cpu(options.threads);
    const auto packing = [&](int64_t done, int64_t total) {
      progress(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total)),
               "packing weights");
    };
    SharedWeightsOptions share;
    share.dir = process.group_dir;
    share.key = DecoderWeights::key(id, shard, options.dtype);
    share.capacity_hint =
        static_cast<size_t>(DecoderWeights::bytes(c, shard, *model.source, options.dtype) + (1 << 20));
    LARIAT_ASSIGN(SharedWeights shared, SharedWeights::obtain(share, [&](PackedStore& store) {
                    return DecoderWeights::pack(c, shard, *model.source, options.dtype,
                                                {.stream = *stream, .progress = packing}, store);
                  }));
    LARIAT_ASSIGN(auto weights, DecoderWeights::from_store(c, shard, *model.source, options.dtype,
                                                           std::move(shared.store)));
    offer_ = std::move(shared.offer);
    LARIAT_ASSIGN(executor_, make_executor(model, options, plan,
                                           {.weights = std::move(weights),
                                            .id = id,
                                            .stream = std::move(stream),
                                            .place = std::move(place),
                                            .poison = process.poison}));
    return Ok{};
  }

 private:
  std::unique_ptr<RankGroups> groups_;  // null with one rank; outlives the executor
  std::unique_ptr<WeightsOffer> offer_;
  std::unique_ptr<ModelExecutor> executor_;
};

}  // namespace

Result<std::unique_ptr<StepExecutor>> load_rank_process(const ModelOptions& model_options,
                                                        const LayoutOptions& layout,
                                                        const RankProcessOptions& options,
                                                        const LoadProgressFn& progress) {
  progress(0, "opening the model");
  LARIAT_ASSIGN(const OpenModel model, open_model(model_options, layout.dtype));
  auto rank = std::make_unique<RankProcess>();
  progress(0, "meeting the other ranks");
  LARIAT_RETURN_IF_ERROR(rank->meet(layout, model.files.config, options));
  LARIAT_RETURN_IF_ERROR(rank->load(model, layout, options, progress));
  return std::unique_ptr<StepExecutor>(std::move(rank));
}

}  // namespace lariat
