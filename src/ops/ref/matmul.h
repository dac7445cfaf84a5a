// Scalar oracle of ops/matmul.h: one thread, no blocking, written from the contract alone.
#pragma once

#include <vector>

#include "ops/matmul.h"

namespace lariat::ref {

// The packed weights back as [n, k] f32, row-major; exact.
std::vector<float> unpack(const PackedMatrix& w);

// Accumulates in double and rounds once; what a tolerance is measured against.
void matmul_double(const MatmulArgs& args);

// The f32 chain that the contract promises, bit for bit: steps k = 0..K-1 from zero, fused (fma) or with two
// roundings a step, then bias, then the old output.
void matmul_chain(const MatmulArgs& args, bool fused);

}  // namespace lariat::ref
