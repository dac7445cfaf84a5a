#include "attention/stripe_shape.h"

#include <fmt/core.h>

namespace lariat {

Result<StripeShape> StripeShape::create(const AttentionConfig& config) {
  const StripeComm& comm = config.comm;
  const int32_t members = comm.ring ? comm.ring->size() : 1;
  const int32_t member = comm.ring ? comm.ring->rank() : 0;
  const int32_t duplicates = comm.duplicates ? comm.duplicates->size() : 1;
  const int32_t duplicate = comm.duplicates ? comm.duplicates->rank() : 0;
  if (members * duplicates != config.placement.stripes())
    return make_error(Errc::kInvalidArgument,
                      fmt::format("{} ranks on the ring times {} that share KV heads are not {} stripes",
                                  members, duplicates, config.placement.stripes()));
  if (config.stripe.get() != member * duplicates + duplicate)
    return make_error(Errc::kInvalidArgument,
                      fmt::format("stripe {} is not that of ring member {}, duplicate {} of {}",
                                  config.stripe.get(), member, duplicate, duplicates));
  std::vector<int32_t> pattern;
  for (const int32_t stripe : config.placement.pattern()) pattern.push_back(stripe / duplicates);
  LARIAT_ASSIGN(Placement compute, Placement::create(std::move(pattern), config.placement.interleave()));
  Placement store = config.placement;
  if (comm.replicated) {
    LARIAT_ASSIGN(store, Placement::equal(1, 1));
  }
  return StripeShape{members,         member,           duplicates,        duplicate,
                     comm.replicated, std::move(store), std::move(compute)};
}

std::vector<int32_t> StripeShape::computed_positions(int32_t of, int64_t from, int64_t to) const {
  std::vector<int32_t> positions;
  const int64_t end = computed(of, to);
  for (int64_t slot = computed(of, from); slot < end; ++slot)
    positions.push_back(
        compute.position(StripeIndex(of), LocalSlot(static_cast<LocalSlot::rep>(slot))).get());
  return positions;
}

}  // namespace lariat
