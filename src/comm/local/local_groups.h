// Ranks as threads of one process, talking through memory.
#pragma once

#include <memory>
#include <vector>

#include "comm/group.h"
#include "comm/local/exchange.h"
#include "comm/rank_groups.h"

namespace lariat {

// One group of `size` >= 1 members, in member order; each is used by one thread.
std::vector<std::unique_ptr<Group>> make_local_groups(int32_t size);

// All groups of every rank of a layout, by rank. `duplicates`: layout_shape's R.
std::vector<RankGroups> make_local_rank_groups(const Layout& layout, int32_t duplicates);

// The same over any exchange of threads.
std::vector<std::unique_ptr<Group>> make_groups(const std::shared_ptr<Exchange>& exchange);
std::vector<RankGroups> make_rank_groups(const std::shared_ptr<Exchange>& exchange, const Layout& layout,
                                         int32_t duplicates);

}  // namespace lariat
