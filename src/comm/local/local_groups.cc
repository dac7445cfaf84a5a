#include "comm/local/local_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "comm/local/member.h"

namespace lariat {
namespace {

// Sends arrive when they are posted; deadlines are real.
class LocalExchange : public Exchange {
 public:
  explicit LocalExchange(int32_t world) : Exchange(world, "local") {}

 protected:
  Status before_post(Lock&, int32_t) override { return Ok{}; }
  void sent(Lock& lock, int32_t group, int32_t from, int32_t to) override {
    channel(group, from, to).sends.back().arrived = true;
    match(lock, group, from, to);
  }
  bool block(Lock& lock, int32_t rank, Deadline deadline) override {
    return seat(rank).wake.wait_until(lock, deadline) == std::cv_status::no_timeout;
  }
  void notify(Lock&, int32_t rank) override { seat(rank).wake.notify_all(); }
  void spread(Lock& lock, int32_t rank, const Error& why) override {
    for (int32_t r = 0; r < world(); ++r)
      if (r != rank) die(lock, r, why);
  }
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_groups(const std::shared_ptr<Exchange>& exchange) {
  std::vector<int32_t> members(static_cast<size_t>(exchange->world()));
  std::iota(members.begin(), members.end(), 0);
  const int32_t group = exchange->add_group(members);
  std::vector<std::unique_ptr<Group>> groups;
  for (const int32_t m : members) groups.push_back(std::make_unique<MemberGroup>(exchange, group, m));
  return groups;
}

std::vector<RankGroups> make_rank_groups(const std::shared_ptr<Exchange>& exchange, const Layout& layout,
                                         int32_t duplicates) {
  LARIAT_CHECK(exchange->world() == layout.world(), "{} threads for {}", exchange->world(), layout.text());
  // A group of the same ranks in another role is another group: the roles' calls are ordered apart.
  std::map<std::pair<int, std::vector<int32_t>>, int32_t> made;
  const auto join = [&](int role, const std::vector<int32_t>& members, int32_t rank) {
    const auto [it, fresh] = made.try_emplace({role, members}, 0);
    if (fresh) it->second = exchange->add_group(members);
    const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
    return std::make_unique<MemberGroup>(exchange, it->second, static_cast<int32_t>(place));
  };
  std::vector<RankGroups> ranks;
  for (int32_t r = 0; r < layout.world(); ++r) {
    const RankMembers members = members_of(layout, duplicates, Rank(r));
    RankGroups groups;
    groups.world = join(0, members.world, r);
    groups.tp = join(1, members.tp, r);
    groups.ring = join(2, members.ring, r);
    groups.duplicates = join(3, members.duplicates, r);
    ranks.push_back(std::move(groups));
  }
  return ranks;
}

std::vector<std::unique_ptr<Group>> make_local_groups(int32_t size) {
  return make_groups(std::make_shared<LocalExchange>(size));
}

std::vector<RankGroups> make_local_rank_groups(const Layout& layout, int32_t duplicates) {
  return make_rank_groups(std::make_shared<LocalExchange>(layout.world()), layout, duplicates);
}

}  // namespace lariat
