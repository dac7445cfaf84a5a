#include "app/local_ranks.h"

#include <map>
#include <optional>
#include <thread>

#include "comm/local/local_groups.h"
#include "head/outcome_merge.h"
#include "plan/schedule_hash.h"

namespace lariat {

Result<std::unique_ptr<LocalRanks>> LocalRanks::load(const OpenModel& model, const LayoutOptions& options,
                                                     const ResolvedPlan& plan, const ExecutorExtras& extras) {
  auto self = std::unique_ptr<LocalRanks>(new LocalRanks());
  self->prefill_ = options.strategy;
  const Layout layout = options.layout();
  const DecoderConfig& c = model.files.config;
  if (layout.world() > 1) self->groups_ = make_local_rank_groups(layout, shape_of(c, layout).duplicates);
  const WeightsId id = weights_id(model);
  std::map<int32_t, std::shared_ptr<const DecoderWeights>> shards;
  for (int32_t r = 0; r < layout.world(); ++r) {
    auto stream = Stream::cpu(options.threads);
    RankGroups* groups = self->groups_.empty() ? nullptr : &self->groups_[static_cast<size_t>(r)];
    LARIAT_ASSIGN(RankPlace place, rank_place(model, options, Rank(r), groups));
    auto& weights = shards[place.t()];
    if (!weights) {
      LARIAT_ASSIGN(weights,
                    DecoderWeights::load(c, shard_of(c, layout.tp, place.t()), *model.source, options.dtype,
                                         {.stream = *stream, .progress = extras.progress}));
    }
    LARIAT_ASSIGN(auto executor, make_executor(model, options, plan,
                                               {.weights = weights,
                                                .id = id,
                                                .stream = std::move(stream),
                                                .place = std::move(place),
                                                .poison = extras.poison}));
    self->ranks_.push_back(std::move(executor));
  }
  self->comm_wait_us_.assign(self->ranks_.size(), 0);
  self->validator_.emplace(self->ranks_.front()->limits());
  return self;
}

int64_t LocalRanks::bytes_sent() const {
  int64_t sum = 0;
  for (const RankGroups& g : groups_) sum += g.counters().bytes_sent;
  return sum;
}

Result<StepOutcome> LocalRanks::run(const StepPlan& plan, const ProgressFn& progress) {
  StepPlan sealed = plan;
  seal(sealed, ranks_.front()->place().constants, prefill_);
  LARIAT_RETURN_IF_ERROR(validator_->check(sealed, sealed.epoch));
  if (ranks_.size() == 1) return ranks_.front()->run(sealed, progress);
  std::vector<std::optional<Result<StepOutcome>>> results(ranks_.size());
  {
    std::vector<std::jthread> threads;
    threads.reserve(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      threads.emplace_back([&, r] { results[r] = ranks_[r]->run(sealed, progress); });
    }
  }
  std::vector<StepOutcome> outcomes;
  for (size_t r = 0; r < results.size(); ++r) {
    auto& result = results[r];
    if (!result->ok()) return std::move(*result).error();
    comm_wait_us_[r] += (*result)->comm_wait_us;
    outcomes.push_back(std::move(*result).value());
  }
  return merge_outcomes(outcomes);
}

}  // namespace lariat
