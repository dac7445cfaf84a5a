// Whether ranks that have loaded fit together, by name of what does not.
#pragma once

#include <span>

#include "base/result.h"
#include "plan/step_plan.h"

namespace lariat {

// hellos: by rank. What the group is: rank 0's word, with the least pages_total (page tables are common to
// all). kInvalidArgument naming the field, the ranks and both values at the first difference.
Result<Hello> agree_on_hello(std::span<const Hello> hellos);

// Whether a group formed again is the one that went: kInvalidArgument naming the field otherwise.
Status same_group(const Hello& before, const Hello& now);

}  // namespace lariat
