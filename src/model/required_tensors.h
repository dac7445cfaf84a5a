// The tensors that a decoder reads, by Hugging Face name and shape.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "weights/requirements.h"

namespace lariat {

// [out, in] for every product, [width] for norms and biases. The output head `lm_head.weight` is required if
// the config does not tie it to the embedding; if it does, a head in the file is no requirement and so
// ignored.
std::vector<TensorRequirement> required_tensors(const DecoderConfig& config);

// Elements of all required tensors; a tied head counts once.
int64_t parameter_count(const DecoderConfig& config);
// Bytes of all required tensors stored as `dtype`.
int64_t weights_bytes(const DecoderConfig& config, DType dtype);

}  // namespace lariat
