// The models that the binary carries, so that it answers wherever it is copied.
#pragma once

#include <span>

#include "model/model_files.h"

namespace lariat {

std::span<const EmbeddedModel> embedded_models();

}  // namespace lariat
