// The body of /v1/chat/completions.
#include <fmt/core.h>

#include <array>

#include "api/request_fields.h"

namespace lariat {
namespace {

using nlohmann::json;

Error message_error(size_t i, std::string_view where, std::string_view what) {
  return field_error(fmt::format("messages[{}]{}", i, where), what);
}

// Text parts are joined with nothing between them, as their authors wrote them.
Result<std::string> join_parts(size_t i, const json& parts) {
  std::string text;
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::string where = fmt::format(".content[{}]", p);
    const json& part = parts[p];
    if (!part.is_object()) return message_error(i, where, "must be an object, got " + describe(part));
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string())
      return message_error(i, where + ".type", "must be a string");
    if (*type != "text") {
      return message_error(
          i, where,
          fmt::format("parts of type \"{}\" are not supported by this model", type->get<std::string>()));
    }
    const auto piece = part.find("text");
    if (piece == part.end() || !piece->is_string())
      return message_error(i, where + ".text", "must be a string");
    text += piece->get<std::string>();
  }
  return text;
}

Status check_tool_calls(size_t i, const json& calls) {
  if (!calls.is_array()) return message_error(i, ".tool_calls", "must be an array, got " + describe(calls));
  for (size_t c = 0; c < calls.size(); ++c) {
    const std::string where = fmt::format(".tool_calls[{}]", c);
    if (!calls[c].is_object()) return message_error(i, where, "must be an object");
    const auto function = calls[c].find("function");
    if (function == calls[c].end() || !function->is_object()) {
      return message_error(i, where + ".function", "must be an object");
    }
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string()) {
      return message_error(i, where + ".function.name", "must be a string");
    }
    const auto arguments = function->find("arguments");
    if (arguments != function->end() && !arguments->is_string()) {
      return message_error(i, where + ".function.arguments", "must be a string of JSON");
    }
  }
  return Ok{};
}

bool known_role(const std::string& role) {
  constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool", "function"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

// The message as templates expect it: content one string (or null beside tool calls), null fields dropped.
Result<json> read_message(size_t i, const json& message) {
  if (!message.is_object()) return message_error(i, "", "must be an object, got " + describe(message));
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return message_error(i, ".role", "must be a string");
  std::string name = role->get<std::string>();
  if (!known_role(name)) {
    return message_error(i, ".role", "must be system, developer, user, assistant, tool or function");
  }
  json out = json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) out[key] = value;
  }
  // Templates know the older name of the same role.
  if (name == "developer") out["role"] = "system";
  if (const auto calls = out.find("tool_calls"); calls != out.end()) {
    LARIAT_RETURN_IF_ERROR(check_tool_calls(i, *calls));
  }
  const auto content = out.find("content");
  if (content == out.end()) {
    if (name != "assistant") return message_error(i, ".content", "must be a string or an array of parts");
    out["content"] = "";
  } else if (content->is_array()) {
    LARIAT_ASSIGN(*content, join_parts(i, *content));
  } else if (!content->is_string()) {
    return message_error(i, ".content", "must be a string or an array of parts, got " + describe(*content));
  }
  return out;
}

Result<json> read_messages(FieldReader& fields) {
  const json* messages = fields.array("messages");
  LARIAT_RETURN_IF_ERROR(fields.status());
  if (messages == nullptr) return field_error("messages", "is required");
  if (messages->empty()) return field_error("messages", "must not be empty");
  json out = json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    LARIAT_ASSIGN(json message, read_message(i, (*messages)[i]));
    out.push_back(std::move(message));
  }
  return out;
}

Result<json> read_tools(FieldReader& fields) {
  const json* tools = fields.array("tools");
  LARIAT_RETURN_IF_ERROR(fields.status());
  if (tools == nullptr || tools->empty()) return json(nullptr);
  for (size_t i = 0; i < tools->size(); ++i) {
    const json& tool = (*tools)[i];
    const std::string path = fmt::format("tools[{}]", i);
    if (!tool.is_object()) return field_error(path, "must be an object, got " + describe(tool));
    if (tool.value("type", json("function")) != "function") {
      return field_error(path + ".type", "must be \"function\"");
    }
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) {
      return field_error(path + ".function", "must be an object");
    }
    if (!function->contains("name") || !(*function)["name"].is_string()) {
      return field_error(path + ".function.name", "must be a string");
    }
  }
  const json* choice = fields.get("tool_choice");
  return choice != nullptr && *choice == "none" ? json(nullptr) : *tools;
}

// Fields of OpenAI's that we know and do not implement pass only with the value that asks for nothing.
void refuse_unimplemented(FieldReader& fields) {
  const auto only = [&](std::string_view name, std::initializer_list<json> harmless, std::string_view why) {
    const json* v = fields.get(name);
    if (v == nullptr || std::find(harmless.begin(), harmless.end(), *v) != harmless.end()) return;
    fields.refuse(name, why);
  };
  constexpr std::string_view kNot = "is not implemented here";
  only("tool_choice", {"auto", "none"}, "only \"auto\" and \"none\" are implemented");
  only("parallel_tool_calls", {true}, "only true is implemented");
  only("response_format", {json{{"type", "text"}}}, "only {\"type\": \"text\"} is implemented");
  only("modalities", {json::array({"text"})}, "only [\"text\"] is implemented");
  only("functions", {json::array()}, "is deprecated and not implemented; give \"tools\"");
  only("function_call", {"none"}, "is deprecated and not implemented; give \"tool_choice\"");
  only("store", {false}, "nothing is stored here; only false is accepted");
  only("service_tier", {"auto", "default"}, "only \"auto\" and \"default\" are accepted");
  only("verbosity", {"medium"}, kNot);
  for (const std::string_view name :
       {"audio", "prediction", "web_search_options", "reasoning_effort", "prompt_cache_retention"}) {
    only(name, {}, kNot);
  }
  only("add_generation_prompt", {true}, "only true is implemented");
  only("echo", {false}, "is a field of /v1/completions");
}

void read_logprobs(FieldReader& fields, ParsedRequest& out, GenerateRequest& request) {
  fields.boolean("logprobs", out.logprobs);
  int32_t top = 0;
  fields.integer("top_logprobs", 0, kTopLogprobsMax, top);
  if (fields.get("top_logprobs") != nullptr && !out.logprobs) {
    fields.fail("top_logprobs", "needs \"logprobs\": true");
  }
  if (out.logprobs) request.top_logprobs = top;
}

void read_variables(FieldReader& fields, json& out) {
  if (const json* kwargs = fields.object("chat_template_kwargs")) out = *kwargs;
  bool thinking = false;
  fields.boolean("enable_thinking", thinking);
  if (fields.get("enable_thinking") != nullptr) out["enable_thinking"] = thinking;
}

void read_bystanders(FieldReader& fields) {
  fields.object("metadata");
  std::string ignored;
  fields.string("safety_identifier", ignored);
  fields.string("prompt_cache_key", ignored);
}

}  // namespace

ApiResult<ParsedRequest> parse_chat(std::string_view body, const ModelContext& model) {
  LARIAT_ASSIGN(const json root, parse_body(body));
  LARIAT_RETURN_IF_ERROR(check_model(root, model));
  ParsedRequest out;
  out.kind = ApiKind::kChat;
  GenerateRequest request;
  FieldReader fields(root);
  refuse_unimplemented(fields);
  read_common(fields, model, out, request);
  read_logprobs(fields, out, request);
  read_bystanders(fields);
  std::optional<int64_t> wanted;
  read_max_tokens(fields, wanted);
  ChatPrompt prompt;
  read_variables(fields, prompt.variables);
  LARIAT_RETURN_IF_ERROR(fields.status());
  LARIAT_ASSIGN(prompt.messages, read_messages(fields));
  LARIAT_ASSIGN(prompt.tools, read_tools(fields));
  if (model.codec == nullptr || !model.codec->has_chat_template()) {
    return field_error("messages", model.codec == nullptr
                                       ? "this model has no tokenizer: give token ids to /v1/completions"
                                       : "this model has no chat template: give a prompt to /v1/completions");
  }
  Result<std::vector<int32_t>> ids = model.codec->encode_chat(prompt);
  if (!ids.ok()) {
    Error e = std::move(ids).error();
    if (e.param.empty()) e.param = "messages";
    return e;
  }
  LARIAT_RETURN_IF_ERROR(place_prompt(std::move(*ids), wanted, "messages", model, request));
  out.generations.push_back(std::move(request));
  finish_request(model, out);
  return out;
}

}  // namespace lariat
