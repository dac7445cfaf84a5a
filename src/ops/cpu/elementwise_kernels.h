// The CPU kernels behind ops/elementwise.h. One call handles a block of rows on the calling thread; a row's
// bits depend on that row alone and, exp apart, not on the instruction set.
#pragma once

#include <cstdint>

#include "ops/elementwise.h"

namespace lariat::cpu {

void rms_norm_rows(const RmsNormArgs& args, int64_t begin, int64_t end);
void rope_rows(const RopeArgs& args, int64_t begin, int64_t end);
void silu_mul_rows(const SiluMulArgs& args, int64_t begin, int64_t end);
void add_range(float* a, const float* b, int64_t n);

}  // namespace lariat::cpu
