// Seeded random weights of a given shape, for benchmarks of models that are not at hand.
#pragma once

#include <memory>
#include <vector>

#include "weights/requirements.h"
#include "weights/tensor_source.h"

namespace lariat {

struct RandomWeights {
  uint64_t seed = 0;
  DType dtype = DType::kBF16;  // f32, bf16 or f16
};

// A source that has exactly `tensors`, each made when it is first asked for and kept until release(). Element
// i of a tensor is a pure function of (seed, name, i) in integer arithmetic, so every host makes the same
// bits: products are near normal with deviation 1 / sqrt(last dimension), norms 1 + 0.02 n, biases 0.02 n.
std::unique_ptr<TensorSource> random_source(std::span<const TensorRequirement> tensors,
                                            const RandomWeights& options);

}  // namespace lariat
