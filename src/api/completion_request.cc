// The body of /v1/completions.
#include <fmt/core.h>

#include "api/echo_text.h"
#include "api/request_fields.h"

namespace lariat {
namespace {

using nlohmann::json;

constexpr int64_t kDefaultMaxTokens = 16;

struct Prompt {
  std::vector<int32_t> ids;
  std::string text;  // what echo gives back
};

Result<Prompt> prompt_of_text(const std::string& path, const json& value, const TextCodec* codec) {
  if (codec == nullptr) return field_error(path, "this model has no tokenizer: give token ids");
  Prompt p;
  p.text = value.get<std::string>();
  Result<std::vector<int32_t>> ids = codec->encode(p.text);
  if (!ids.ok()) return field_error(path, ids.error().message);
  p.ids = std::move(*ids);
  if (p.ids.empty() && codec->bos_id()) p.ids.push_back(*codec->bos_id());
  if (p.ids.empty())
    return field_error(path, "is empty, and this model has no begin-of-text token to start from");
  return p;
}

Result<Prompt> prompt_of_ids(const std::string& path, const json& list, const ModelContext& model) {
  if (list.empty()) return field_error(path, "must hold at least one token");
  Prompt p;
  p.ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    Result<int64_t> id = strict_integer(list[i], 0, model.vocab - 1);
    if (!id.ok()) return field_error(fmt::format("{}[{}]", path, i), "token id " + id.error().message);
    p.ids.push_back(static_cast<int32_t>(*id));
  }
  if (model.codec != nullptr) p.text = text_of(p.ids, *model.codec);
  return p;
}

// A string, token ids, or an array of either.
Result<std::vector<Prompt>> read_prompts(FieldReader& fields, const ModelContext& model) {
  const json* prompt = fields.get("prompt");
  if (prompt == nullptr) return field_error("prompt", "is required");
  std::vector<Prompt> out;
  const auto add = [&](const std::string& path, const json& value) -> Status {
    LARIAT_ASSIGN(Prompt p, value.is_string() ? prompt_of_text(path, value, model.codec)
                                              : prompt_of_ids(path, value, model));
    out.push_back(std::move(p));
    return Ok{};
  };
  if (!prompt->is_string() && !prompt->is_array()) {
    return field_error(
        "prompt", "must be a string, an array of token ids, or an array of those, got " + describe(*prompt));
  }
  if (prompt->is_string() || prompt->empty() || !((*prompt)[0].is_string() || (*prompt)[0].is_array())) {
    LARIAT_RETURN_IF_ERROR(add("prompt", *prompt));
    return out;
  }
  if (prompt->size() > kChoicesMax) {
    return field_error("prompt", fmt::format("at most {} prompts, got {}", kChoicesMax, prompt->size()));
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const json& item = (*prompt)[i];
    const std::string path = fmt::format("prompt[{}]", i);
    if (item.type() != (*prompt)[0].type()) {
      return field_error(
          path, fmt::format("must be {} like the first, got {}", describe((*prompt)[0]), describe(item)));
    }
    LARIAT_RETURN_IF_ERROR(add(path, item));
  }
  return out;
}

void read_suffix_and_best_of(FieldReader& fields, int32_t n) {
  std::string suffix;
  fields.string("suffix", suffix);
  if (!suffix.empty()) fields.refuse("suffix", "is not implemented here");
  std::optional<int64_t> best_of;
  fields.integer("best_of", 1, INT32_MAX, best_of);
  if (best_of && *best_of != 1 && *best_of != n)
    fields.refuse("best_of", "only 1 or the value of n is implemented");
}

void read_logprobs(FieldReader& fields, ParsedRequest& out, GenerateRequest& request) {
  if (const json* v = fields.get("logprobs"); v != nullptr && *v == false) return;
  fields.integer("logprobs", 0, kTopLogprobsMax, request.top_logprobs);
  out.logprobs = request.top_logprobs >= 0;
  if (out.echo) request.prompt_logprobs = request.top_logprobs;
}

}  // namespace

ApiResult<ParsedRequest> parse_completion(std::string_view body, const ModelContext& model) {
  LARIAT_ASSIGN(const json root, parse_body(body));
  LARIAT_RETURN_IF_ERROR(check_model(root, model));
  ParsedRequest out;
  out.kind = ApiKind::kCompletion;
  GenerateRequest request;
  FieldReader fields(root);
  read_common(fields, model, out, request);
  read_suffix_and_best_of(fields, request.n);
  fields.boolean("echo", out.echo);
  read_logprobs(fields, out, request);
  std::optional<int64_t> wanted;
  read_max_tokens(fields, wanted);
  if (!wanted) wanted = std::max<int64_t>(kDefaultMaxTokens, request.min_tokens);
  LARIAT_RETURN_IF_ERROR(fields.status());
  LARIAT_ASSIGN(std::vector<Prompt> prompts, read_prompts(fields, model));
  if (static_cast<int64_t>(prompts.size()) * request.n > kChoicesMax) {
    return field_error("n", fmt::format("{} prompts of {} choices are more than {}", prompts.size(),
                                        request.n, kChoicesMax));
  }
  for (Prompt& p : prompts) {
    GenerateRequest one = request;
    LARIAT_RETURN_IF_ERROR(place_prompt(std::move(p.ids), wanted, "prompt", model, one));
    out.generations.push_back(std::move(one));
    if (out.echo) out.echo_text.push_back(std::move(p.text));
  }
  finish_request(model, out);
  return out;
}

}  // namespace lariat
