// tokenizer_config.json and generation_config.json: special tokens, BOS policy, chat template.
#include <fmt/core.h>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace lariat {
namespace {

using nlohmann::json;

Error corrupt(std::string message) {
  return make_error(Errc::kCorruptData, std::move(message));
}

const json* find(const json& o, const char* key) {
  const auto it = o.find(key);
  return it == o.end() || it->is_null() ? nullptr : &*it;
}

// "<s>" or {"content": "<s>", ...}
Result<std::string> token_text(const json& o, const char* key) {
  const json* value = find(o, key);
  if (value && value->is_object()) value = find(*value, "content");
  if (!value) return std::string();
  if (!value->is_string()) return corrupt(fmt::format("tokenizer_config.json: \"{}\" is no string", key));
  return value->get<std::string>();
}

// A template, or a list of {"name", "template"}.
Status chat_templates(const json& o, TokenizerConfig& out) {
  const json* value = find(o, "chat_template");
  if (!value) return Ok{};
  if (value->is_string()) {
    out.chat_template = value->get<std::string>();
    return Ok{};
  }
  const auto fault = [] {
    return corrupt("tokenizer_config.json: \"chat_template\" is neither text nor a list of named texts");
  };
  if (!value->is_array()) return fault();
  for (const json& item : *value) {
    const json* name = item.is_object() ? find(item, "name") : nullptr;
    const json* text = item.is_object() ? find(item, "template") : nullptr;
    if (!name || !text || !name->is_string() || !text->is_string()) return fault();
    if (*name == "default") out.chat_template = text->get<std::string>();
    if (*name == "tool_use") out.chat_template_with_tools = text->get<std::string>();
  }
  return Ok{};
}

Status eos_ids(const json& o, std::vector<int32_t>& out) {
  const json* value = find(o, "eos_token_id");
  if (!value) return Ok{};
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > TokenTable::kIdMax) {
      return corrupt("generation_config.json: \"eos_token_id\" is neither an id nor a list of ids");
    }
    out.push_back(id.get<int32_t>());
  }
  return Ok{};
}

Result<json> parse_object(std::string_view text, std::string_view name) {
  if (text.empty()) return json::object();
  auto parsed = parse_json(text);
  if (!parsed.ok()) return parsed.error().in(name);
  if (!parsed->is_object()) return corrupt(fmt::format("{}: the top level is no object", name));
  return parsed;
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(std::string_view config_json,
                                               std::string_view generation_json) {
  LARIAT_ASSIGN(const json config, parse_object(config_json, "tokenizer_config.json"));
  LARIAT_ASSIGN(const json generation, parse_object(generation_json, "generation_config.json"));
  TokenizerConfig out;
  LARIAT_ASSIGN(out.bos_token, token_text(config, "bos_token"));
  LARIAT_ASSIGN(out.eos_token, token_text(config, "eos_token"));
  if (const json* add = find(config, "add_bos_token")) {
    if (!add->is_boolean()) return corrupt("tokenizer_config.json: \"add_bos_token\" is no boolean");
    out.add_bos_token = add->get<bool>();
  }
  if (const json* add = find(config, "add_eos_token"); add && *add != false) {
    return make_error(Errc::kUnsupported,
                      "tokenizer_config.json: \"add_eos_token\" is set, which is not implemented");
  }
  LARIAT_RETURN_IF_ERROR(chat_templates(config, out));
  LARIAT_RETURN_IF_ERROR(eos_ids(generation, out.eos_ids));
  return out;
}

}  // namespace lariat
