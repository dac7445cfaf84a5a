// Why a rank's mesh died, as its peers read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lariat {

// Slots of messages that belong to no group; see slot_of in member.cc.
inline constexpr uint64_t kObituarySlot = ~uint64_t{0};
inline constexpr uint64_t kHelloSlot = ~uint64_t{1};
inline constexpr uint64_t kCanarySlot = ~uint64_t{2};
inline constexpr size_t kObituaryBytes = 1024;

// As errors name a rank, in their `param` too.
std::string rank_name(int32_t rank);
// kUnavailable: "rank 2 is gone: `how`".
Error peer_gone(int32_t peer, const std::string& how);

struct Obituary {
  Error why;
  bool orderly = false;  // the rank is done and left; what it sent before is good
};

// kObituaryBytes long; a message that does not fit is cut.
std::vector<char> write_obituary(const Obituary& obituary);
// Any bytes give one; what makes no sense is an error of `from`.
Obituary read_obituary(const std::vector<char>& text, int32_t from);

}  // namespace lariat
