// The body of /v1/chat/completions.
#include <fmt/core.h>

#include "api/request_fields.h"

namespace lariat {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Whether there are tools for the template to show.
Result<bool> read_tools(FieldReader& fields) {
  const json* tools = fields.array("tools");
  LARIAT_RETURN_IF_ERROR(fields.status());
  if (tools == nullptr || tools->empty()) return false;
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
    if (const json strict = function->value("strict", json(false)); !strict.is_null() && strict != false) {
      return field_error(path + ".function.strict", "only false is implemented: calls are not checked");
    }
  }
  const json* choice = fields.get("tool_choice");
  return choice == nullptr || *choice != "none";
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

void read_variables(FieldReader& fields, const ordered_json& root, ordered_json& out) {
  if (fields.object("chat_template_kwargs") != nullptr) out = root["chat_template_kwargs"];
  bool thinking = false;
  fields.boolean("enable_thinking", thinking);
  if (fields.get("enable_thinking") != nullptr) out["enable_thinking"] = thinking;
}

Result<ChatPrompt> read_prompt(FieldReader& fields, std::string_view body) {
  const json* messages = fields.array("messages");
  LARIAT_RETURN_IF_ERROR(fields.status());
  if (messages == nullptr) return field_error("messages", "is required");
  LARIAT_ASSIGN(const bool tools, read_tools(fields));
  // The body is known to be valid by now; this reading keeps the order of its keys.
  ordered_json root = ordered_json::parse(body, nullptr, /*allow_exceptions=*/false);
  ChatPrompt prompt;
  read_variables(fields, root, prompt.variables);
  LARIAT_RETURN_IF_ERROR(fields.status());
  prompt.messages = std::move(root["messages"]);
  if (tools) prompt.tools = std::move(root["tools"]);
  return prompt;
}

Result<std::vector<int32_t>> encode(const ChatPrompt& prompt, const TextCodec* codec) {
  if (codec == nullptr) {
    return field_error("messages", "this model has no tokenizer: give token ids to /v1/completions");
  }
  if (!codec->has_chat_template()) {
    return field_error("messages", "this model has no chat template: give a prompt to /v1/completions");
  }
  Result<std::vector<int32_t>> ids = codec->encode_chat(prompt);
  if (ids.ok()) return ids;
  Error e = std::move(ids).error();
  // A template speaks in words of its own.
  const std::string param = e.param.empty() ? "messages" : e.param.substr(0, e.param.find_first_of(".["));
  const bool has_path = e.message.starts_with(param) && e.message.find_first_of(":.[") == param.size();
  if (!has_path) e.message = param + ": " + e.message;
  // A prompt that is too much for the template's limits is the client's to mend, not a full queue.
  if (e.code == Errc::kResourceExhausted) e.code = Errc::kInvalidArgument;
  e.param = param;
  return e;
}

}  // namespace

ApiResult<ParsedRequest> parse_chat(std::string_view body, const ModelContext& model) {
  LARIAT_ASSIGN(const json root, parse_body(body));
  LARIAT_RETURN_IF_ERROR(check_model(root, model));
  ParsedRequest out;
  out.kind = ApiKind::kChat;
  GenerateRequest request;
  FieldReader fields(root);
  read_common(fields, model, out, request);
  read_logprobs(fields, out, request);
  std::optional<int64_t> wanted;
  read_max_tokens(fields, wanted);
  LARIAT_RETURN_IF_ERROR(fields.status());
  LARIAT_ASSIGN(const ChatPrompt prompt, read_prompt(fields, body));
  LARIAT_ASSIGN(std::vector<int32_t> ids, encode(prompt, model.codec));
  LARIAT_RETURN_IF_ERROR(place_prompt(std::move(ids), wanted, "messages", model, request));
  out.generations.push_back(std::move(request));
  finish_request(model, out);
  return out;
}

}  // namespace lariat
