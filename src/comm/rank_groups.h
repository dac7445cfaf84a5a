// The groups a rank is a member of, made together at start and replaced together under a new epoch.
// docs/design.md §1.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "comm/group.h"
#include "plan/layout.h"

namespace lariat {

// World ranks of a rank's groups, in member order.
struct RankMembers {
  std::vector<int32_t> world;
  std::vector<int32_t> tp;          // the ranks of one cp index; member t
  std::vector<int32_t> ring;        // the cp ranks at one t; member c
  std::vector<int32_t> duplicates;  // of one cp index, with the same KV heads; member t % R
};

// `duplicates` is layout_shape's R; it divides tp.
inline RankMembers members_of(const Layout& layout, int32_t duplicates, Rank rank) {
  LARIAT_CHECK(
      duplicates >= 1 && layout.tp % duplicates == 0 && rank.get() >= 0 && rank.get() < layout.world(),
      "rank {} of {} with {} duplicates", rank.get(), layout.text(), duplicates);
  const int32_t c = rank.get() / layout.tp;
  const int32_t t = rank.get() % layout.tp;
  RankMembers members;
  for (int32_t r = 0; r < layout.world(); ++r) members.world.push_back(r);
  for (int32_t i = 0; i < layout.tp; ++i) members.tp.push_back(layout.rank(c, i).get());
  for (int32_t i = 0; i < layout.cp; ++i) members.ring.push_back(layout.rank(i, t).get());
  for (int32_t i = 0; i < duplicates; ++i)
    members.duplicates.push_back(layout.rank(c, t / duplicates * duplicates + i).get());
  return members;
}

// They fail together: the first error of one is the error of all.
struct RankGroups {
  std::unique_ptr<Group> world;
  std::unique_ptr<Group> tp;
  std::unique_ptr<Group> ring;
  std::unique_ptr<Group> duplicates;

  // Of all groups together: what the rank sent, and how long it waited for peers.
  CommCounters counters() const {
    CommCounters sum;
    for (const Group* group : {world.get(), tp.get(), ring.get(), duplicates.get()}) {
      if (!group) continue;
      const CommCounters c = group->counters();
      sum.calls += c.calls;
      sum.bytes_sent += c.bytes_sent;
      sum.wait_us += c.wait_us;
    }
    return sum;
  }

  void abort(const Error& why) {
    for (Group* group : {world.get(), tp.get(), ring.get(), duplicates.get()})
      if (group) group->abort(why);
  }
};

}  // namespace lariat
