#include "head/hello_agreement.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lariat {
namespace {

template <class T>
Status equal(const char* field, const T& a, const T& b, const std::string& who_a, const std::string& who_b) {
  if (a == b) return Ok{};
  return make_error(Errc::kInvalidArgument,
                    fmt::format("{} differs: {} has {}, {} has {}", field, who_a, a, who_b, b));
}

std::string hash_text(const Hello& h) {
  return fmt::format("{:016x}{:016x}", h.weights_hash[1], h.weights_hash[0]);
}

Status check_same(const Hello& a, const Hello& b, const std::string& who_a, const std::string& who_b) {
  LARIAT_RETURN_IF_ERROR(equal("protocol", a.protocol_major, b.protocol_major, who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("build", a.build_id, b.build_id, who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("weights hash", hash_text(a), hash_text(b), who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("kv type", a.kv_type, b.kv_type, who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("store pattern", a.store_pattern, b.store_pattern, who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("compute pattern", a.compute_pattern, b.compute_pattern, who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("interleave", a.interleave, b.interleave, who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("ring block", a.ring_block, b.ring_block, who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("page tokens", a.page_tokens, b.page_tokens, who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("cache groups", a.cache_groups, b.cache_groups, who_a, who_b));
  LARIAT_RETURN_IF_ERROR(equal("vocabulary", a.vocab, b.vocab, who_a, who_b));
  return equal("world", a.world, b.world, who_a, who_b);
}

}  // namespace

Result<Hello> agree_on_hello(std::span<const Hello> hellos) {
  LARIAT_CHECK(!hellos.empty(), "no rank, no hello");
  Hello group = hellos[0];
  for (size_t i = 0; i < hellos.size(); ++i) {
    const Hello& h = hellos[i];
    const std::string who = fmt::format("rank {}", i);
    LARIAT_RETURN_IF_ERROR(equal("rank", static_cast<int32_t>(i), h.rank, "the head", who));
    LARIAT_RETURN_IF_ERROR(equal("world", static_cast<int32_t>(hellos.size()), h.world, "the head", who));
    LARIAT_RETURN_IF_ERROR(check_same(hellos[0], h, "rank 0", who));
    group.pages_total = std::min(group.pages_total, h.pages_total);
  }
  return group;
}

Status same_group(const Hello& before, const Hello& now) {
  LARIAT_RETURN_IF_ERROR(check_same(before, now, "the group before", "the one formed now"));
  return equal("pages", before.pages_total, now.pages_total, "the group before", "the one formed now");
}

}  // namespace lariat
