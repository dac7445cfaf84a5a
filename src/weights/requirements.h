// What a model needs of its weights, checked as a whole before any of it is used.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/problems.h"
#include "base/result.h"
#include "tensor/view.h"
#include "weights/tensor_source.h"

namespace lariat {

struct TensorRequirement {
  std::string name;
  Shape shape;
  bool optional = false;  // may be absent; if present it must fit
  // Types that the model computes with.
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16, DType::kF16};
};

// What check_requirements() finds, into `problems`; `accused`, if given, says of which
// tensors nothing more is to be said.
void add_unmet(const TensorSource& source, std::span<const TensorRequirement> requirements,
               const std::function<bool(std::string_view)>& accused, Problems& problems);

// kCorruptData naming every tensor that is missing, or has another shape or type (the first 20 and how many
// more). Tensors that nothing requires are ignored: `extras_note` says which, empty if there are none.
Status check_requirements(const TensorSource& source, std::span<const TensorRequirement> requirements,
                          std::string* extras_note);

}  // namespace lariat
