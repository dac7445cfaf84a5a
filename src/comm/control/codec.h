// Messages <-> protobuf, every field both ways. Protobuf's own types stay in the .cc files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "comm/control/messages.h"

namespace lariat::control_v1 {
class ToRank;
class FromRank;
}  // namespace lariat::control_v1

namespace lariat {

// No message is larger, in either direction: prompt logprobs of a 130K prompt with 20 alternatives fit.
inline constexpr size_t kControlMessageBytesMax = size_t{64} << 20;
static_assert(kLogitsBytesMax <= kControlMessageBytesMax * 3 / 4);

// kResourceExhausted if the message would be larger than kControlMessageBytesMax.
Status encode(const ToRank& message, control_v1::ToRank& out);
Status encode(const FromRank& message, control_v1::FromRank& out);
// kCorruptData, naming the field, for what no encoder writes: no body, an enum out of range, lists of unequal
// length. Whether a plan makes sense is not asked here.
Result<ToRank> decode(const control_v1::ToRank& in);
Result<FromRank> decode(const control_v1::FromRank& in);

// The same as bytes, for files and tests.
Result<std::string> to_bytes(const ToRank& message);
Result<std::string> to_bytes(const FromRank& message);
Result<ToRank> to_rank_from_bytes(std::string_view bytes);
Result<FromRank> from_rank_from_bytes(std::string_view bytes);

}  // namespace lariat
