// One number that tells two sets of weights apart.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "weights/requirements.h"
#include "weights/tensor_source.h"

namespace lariat {

// XXH3-128 {low, high} over name, type, shape and samples of every required tensor that the source has, in
// the order given: whole tensors up to 64 KiB, else 16 blocks of 4 KiB spread evenly from first to last. It
// tells fine-tunes of one shape apart and costs a few pages a tensor; it is no defence against a forger. The
// hello of a rank carries it (docs/design.md §5).
std::array<uint64_t, 2> weights_fingerprint(const TensorSource& source,
                                            std::span<const TensorRequirement> required);

}  // namespace lariat
