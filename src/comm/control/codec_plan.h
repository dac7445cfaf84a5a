// The step plan's and the outcome's part of the codec; used by codec.cc alone.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/step_plan.h"

namespace lariat::control_v1 {
class Plan;
class Outcome;
}  // namespace lariat::control_v1

namespace lariat {

// kCorruptData, naming the field, if the number is past the enum's last value.
template <class E, E kLast>
Result<E> decode_enum(uint32_t value, std::string_view field) {
  if (value <= static_cast<uint32_t>(kLast)) return static_cast<E>(value);
  return make_error(Errc::kCorruptData, fmt::format("{} is {}, past the last known value {}", field, value,
                                                    static_cast<uint32_t>(kLast)));
}

// Protobuf strings must be UTF-8 or the whole message is lost; an error text that quotes a file's bytes may
// not be. Bytes outside ASCII become \xNN when the text is not UTF-8.
std::string utf8_or_escaped(std::string_view text);

void encode_plan(const StepPlan& plan, control_v1::Plan& out);
Result<StepPlan> decode_plan(const control_v1::Plan& in);
void encode_outcome(const StepOutcome& outcome, control_v1::Outcome& out);
Result<StepOutcome> decode_outcome(const control_v1::Outcome& in);

}  // namespace lariat
