#include "plan/schedule_hash.h"

#include <xxhash.h>

#include <string>

namespace lariat {
namespace {

// Little endian whatever the host, so that ranks of different machines agree.
void put(std::string& bytes, uint64_t value) {
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

}  // namespace

Result<std::vector<Collective>> derive_schedule(const StepPlan& plan, const Layout& layout) {
  if (const auto refusal = check_ranks_served(layout))
    return make_error(Errc::kUnsupported, fmt::format("step {}: {}", plan.step.get(), refusal->reason),
                      refusal->setting);
  return std::vector<Collective>{};
}

std::array<uint64_t, 2> schedule_hash(std::span<const Collective> schedule) {
  if (schedule.empty()) return {0, 0};
  std::string bytes;
  for (const Collective& c : schedule) {
    put(bytes, static_cast<uint64_t>(c.kind));
    put(bytes, static_cast<uint64_t>(c.group));
    put(bytes, static_cast<uint64_t>(c.root));
    put(bytes, c.bytes.size());
    for (const int64_t sent : c.bytes) put(bytes, static_cast<uint64_t>(sent));
  }
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace lariat
