#include "app/rank_set.h"

#include "app/local_ranks.h"
#include "app/process_ranks.h"

namespace lariat {

RankSetFactory rank_sets(RankTransport transport, const RankSetOptions& options) {
  if (transport == RankTransport::kGloo) {
    return [options](const OpenModel& model, const LayoutOptions& layout, const ResolvedPlan& plan) {
      return ProcessRanks::start(model, settled_layout(layout, plan), options);
    };
  }
  return [options](const OpenModel& model, const LayoutOptions& layout,
                   const ResolvedPlan& plan) -> Result<std::unique_ptr<RankSet>> {
    ExecutorExtras extras{.poison = options.poison, .progress = {}};
    if (options.progress) extras.progress = options.progress->callback();
    LARIAT_ASSIGN(auto ranks, LocalRanks::load(model, layout, plan, extras));
    return std::unique_ptr<RankSet>(std::move(ranks));
  };
}

}  // namespace lariat
