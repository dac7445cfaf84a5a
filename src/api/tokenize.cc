// The bodies of /tokenize and /detokenize.
#include "api/echo_text.h"
#include "api/request_fields.h"
#include "api/wire.h"

namespace lariat {
namespace {

const char* const kNoTokenizer = "this model has no tokenizer";

}  // namespace

ApiResult<std::string> answer_tokenize(std::string_view body, const ModelContext& model) {
  LARIAT_ASSIGN(const nlohmann::json root, parse_body(body));
  LARIAT_RETURN_IF_ERROR(check_model(root, model));
  FieldReader fields(root);
  std::string prompt;
  fields.string("prompt", prompt);
  LARIAT_RETURN_IF_ERROR(fields.status());
  if (fields.get("prompt") == nullptr) return field_error("prompt", "is required");
  if (model.codec == nullptr) return field_error("prompt", kNoTokenizer);
  Result<std::vector<int32_t>> ids = model.codec->encode(prompt);
  if (!ids.ok()) return field_error("prompt", ids.error().message);
  WireJson out;
  out["tokens"] = *ids;
  out["count"] = ids->size();
  return to_wire(out);
}

ApiResult<std::string> answer_detokenize(std::string_view body, const ModelContext& model) {
  LARIAT_ASSIGN(const nlohmann::json root, parse_body(body));
  LARIAT_RETURN_IF_ERROR(check_model(root, model));
  FieldReader fields(root);
  const nlohmann::json* tokens = fields.array("tokens");
  LARIAT_RETURN_IF_ERROR(fields.status());
  if (tokens == nullptr) return field_error("tokens", "is required");
  if (model.codec == nullptr) return field_error("tokens", kNoTokenizer);
  std::vector<int32_t> ids;
  ids.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    Result<int64_t> id = strict_integer((*tokens)[i], 0, model.vocab - 1);
    if (!id.ok()) return field_error("tokens[" + std::to_string(i) + "]", "token id " + id.error().message);
    ids.push_back(static_cast<int32_t>(*id));
  }
  WireJson out;
  out["prompt"] = text_of(ids, *model.codec);
  return to_wire(out);
}

}  // namespace lariat
