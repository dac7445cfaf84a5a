// Tokens to tree.
#pragma once

#include <string_view>

#include "tokenizer/jinja_ast.h"

namespace lariat::jinja {

// Nesting of expressions and of blocks.
inline constexpr int kTreeDepthMax = 100;

// Throws Fault with the line: kCorruptData for bad syntax, kUnsupported (by name) for tags, filters and tests
// that we do not have.
Body parse(std::string_view source);

}  // namespace lariat::jinja
