#include "tokenizer/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/excerpt.h"
#include "base/json.h"

namespace lariat {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, 7> kRoles = {"system", "developer", "user",   "assistant",
                                                    "tool",   "function",  "ipython"};

constexpr size_t kNameBytesMax = 60;  // of a client's word in a message

Error invalid(std::string message, std::string param) {
  return make_error(Errc::kInvalidArgument, fmt::format("{}: {}", param, message), param);
}

const ordered_json* member(const ordered_json& o, const char* key) {
  const auto it = o.find(key);
  return it == o.end() || it->is_null() ? nullptr : &*it;
}

Result<std::string> part_text(const ordered_json& part, const std::string& where) {
  const ordered_json* type = part.is_object() ? member(part, "type") : nullptr;
  if (!type || !type->is_string()) return invalid("a content part needs a \"type\"", where);
  const std::string& name = type->get_ref<const std::string&>();
  if (name != "text" && name != "refusal") {
    return invalid(fmt::format("content parts of type \"{}\" are not supported by this model: only text is",
                               excerpt(name, kNameBytesMax)),
                   where);
  }
  const ordered_json* text = member(part, name.c_str());
  if (!text || !text->is_string()) return invalid(fmt::format("needs a \"{}\" string", name), where);
  return text->get<std::string>();
}

Result<std::string> content_text(const ordered_json& message, bool may_be_absent, const std::string& where) {
  const ordered_json* content = member(message, "content");
  if (!content) {
    if (may_be_absent) return std::string();
    return invalid("is required for this role", where);
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return invalid("must be a string or a list of parts", where);
  std::string joined;
  for (size_t i = 0; i < content->size(); ++i) {
    LARIAT_ASSIGN(const std::string text, part_text((*content)[i], fmt::format("{}[{}]", where, i)));
    joined += text;
  }
  return joined;
}

// The object in a string of JSON, or null.
ordered_json object_in(const std::string& text) {
  if (!parse_json(text).ok()) return nullptr;  // for its cap on depth
  ordered_json value = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_object() ? value : ordered_json(nullptr);
}

Result<ordered_json> tool_calls(const ordered_json& calls, const std::string& where) {
  if (!calls.is_array()) return invalid("must be a list", where);
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", where, i);
    ordered_json call = calls[i];
    if (!call.is_object()) return invalid("must be an object", at);
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) return invalid("needs a \"function\" object", at);
    const ordered_json* name = member(*function, "name");
    if (!name || !name->is_string()) return invalid("needs a \"name\" string", at + ".function");
    if (const ordered_json* arguments = member(*function, "arguments"); arguments && arguments->is_string()) {
      ordered_json object = object_in(arguments->get_ref<const std::string&>());
      if (!object.is_null()) (*function)["arguments"] = std::move(object);
    } else if (arguments && !arguments->is_object()) {
      return invalid("must be a string of JSON or an object", at + ".function.arguments");
    }
    out.push_back(std::move(call));
  }
  return out;
}

Result<ordered_json> normalize(const ordered_json& message, const NormalizeOptions& options,
                               const std::string& where) {
  if (!message.is_object()) return invalid("must be an object", where);
  const ordered_json* role = member(message, "role");
  if (!role || !role->is_string()) return invalid("is required and must be a string", where + ".role");
  std::string name = role->get<std::string>();
  if (!is_known_role(name)) {
    return invalid(fmt::format("\"{}\" is none of {}", excerpt(name, kNameBytesMax), fmt::join(kRoles, ", ")),
                   where + ".role");
  }
  LARIAT_ASSIGN(std::string content, content_text(message, name == "assistant", where + ".content"));
  if (name == "developer" && !options.keep_developer) name = "system";
  ordered_json out = ordered_json::object();
  out["role"] = std::move(name);
  out["content"] = std::move(content);
  for (const auto& [key, value] : message.items()) {
    if (key == "role" || key == "content" || value.is_null()) continue;
    if (key == "function_call" || key == "audio") {
      return invalid("is not implemented here", fmt::format("{}.{}", where, key));
    }
    if (key != "tool_calls") {
      out[key] = value;
      continue;
    }
    LARIAT_ASSIGN(ordered_json calls, tool_calls(value, where + ".tool_calls"));
    if (!calls.empty()) out[key] = std::move(calls);
  }
  return out;
}

}  // namespace

bool is_known_role(std::string_view role) {
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

Result<ordered_json> normalize_messages(const ordered_json& messages, const NormalizeOptions& options) {
  if (!messages.is_array()) return invalid("must be a list", "messages");
  if (messages.empty()) return invalid("must not be empty", "messages");
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    LARIAT_ASSIGN(ordered_json message, normalize(messages[i], options, fmt::format("messages[{}]", i)));
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace lariat
