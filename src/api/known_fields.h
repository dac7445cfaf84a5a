// Fields that are known and not implemented: OpenAI's own, the other endpoint's, other engines'. Private to
// api/.
#pragma once

#include "api/field_reader.h"
#include "api/request.h"

namespace lariat {

// Refuses each of them by name unless its value asks for nothing. A name that is in none of the lists passes.
void refuse_known(FieldReader& fields, ApiKind kind);

}  // namespace lariat
