// Runs a parsed template.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_builtins.h"

namespace lariat::jinja {

// The whole output. Throws Fault.
Text run(const Body& body, std::vector<std::pair<std::string, Value>> globals, Context& context);

}  // namespace lariat::jinja
