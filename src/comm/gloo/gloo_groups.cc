#include "comm/gloo/gloo_groups.h"

#include "comm/gloo/member.h"
#include "comm/gloo/mesh.h"

namespace lariat {

Result<RankGroups> make_gloo_rank_groups(const GlooOptions& options) {
  const RankMembers members = members_of(options.layout, options.duplicates, options.rank);
  LARIAT_ASSIGN(const std::shared_ptr<Mesh> mesh, Mesh::connect(options));
  using Role = GlooGroup::Role;
  RankGroups groups;
  groups.world = std::make_unique<GlooGroup>(mesh, Role::kWorld, members.world);
  groups.tp = std::make_unique<GlooGroup>(mesh, Role::kTp, members.tp);
  groups.ring = std::make_unique<GlooGroup>(mesh, Role::kRing, members.ring);
  groups.duplicates = std::make_unique<GlooGroup>(mesh, Role::kDuplicates, members.duplicates);
  return groups;
}

}  // namespace lariat
