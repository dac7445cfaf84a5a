// Scalar oracle of ops/elementwise.h, in double, rounded once at the end.
#pragma once

#include "ops/elementwise.h"

namespace lariat::ref {

void rms_norm(const RmsNormArgs& args);
void rope(const RopeArgs& args);
void silu_mul(const SiluMulArgs& args);

}  // namespace lariat::ref
