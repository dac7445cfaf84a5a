// Messages as clients send them to messages as templates read them.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace lariat {

// system, developer, user, assistant, tool, function, ipython
bool is_known_role(std::string_view role);

struct NormalizeOptions {
  bool keep_developer = false;  // the template knows the role; else it becomes "system"
};

// Checks and evens out a request's `messages`:
// - a list of at least one object, each with a known role;
// - content: text; a list of parts becomes the texts of its "text" (and "refusal") parts, joined without
// anything
//   between them; other parts are refused naming the type; null or no content is allowed for an assistant
//   only and becomes "";
// - tool_calls[].function.arguments: a string that holds a JSON object becomes that object, any other string
// stays;
// - members that are null, and an empty tool_calls, are dropped, since templates ask whether they are there.
// Order of members is kept. kInvalidArgument with param "messages[i]...".
Result<nlohmann::ordered_json> normalize_messages(const nlohmann::ordered_json& messages,
                                                  const NormalizeOptions& options = {});

}  // namespace lariat
