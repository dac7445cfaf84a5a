#include "api/request_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <random>

#include "api/known_fields.h"
#include "base/excerpt.h"
#include "base/json.h"

namespace lariat {
namespace {

using nlohmann::json;

constexpr size_t kNameBytesMax = 100;  // of a client's word in a message

void read_sampling(FieldReader& fields, const SamplingDefaults& defaults, SamplingSettings& s) {
  s.temperature = defaults.temperature.value_or(1.0f);
  s.top_p = defaults.top_p.value_or(1.0f);
  s.top_k = defaults.top_k.value_or(0);
  s.min_p = defaults.min_p.value_or(0.0f);
  s.repetition_penalty = defaults.repetition_penalty.value_or(1.0f);
  fields.number("temperature", 0, 2, s.temperature);
  fields.number("top_p", 0, 1, s.top_p);
  fields.integer("top_k", -1, INT32_MAX, s.top_k);
  fields.number("min_p", 0, 1, s.min_p);
  fields.number("repetition_penalty", 0.01, 100, s.repetition_penalty);
  fields.number("presence_penalty", -2, 2, s.presence_penalty);
  fields.number("frequency_penalty", -2, 2, s.frequency_penalty);
  s.top_k = std::max(s.top_k, 0);
  // A nucleus of nothing keeps the most likely token.
  if (s.top_p == 0) {
    s.top_p = 1;
    s.top_k = 1;
  }
}

void read_logit_bias(FieldReader& fields, int64_t vocab, SamplingSettings& s) {
  const json* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  for (const auto& [key, value] : bias->items()) {
    const std::string path = fmt::format("logit_bias[\"{}\"]", excerpt(key, kNameBytesMax));
    int32_t id = -1;
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool plain = fault == std::errc() && end == key.data() + key.size() && std::to_string(id) == key;
    if (!plain || id < 0 || id >= vocab) {
      return fields.fail(path, fmt::format("the key must be a token id between 0 and {}", vocab - 1));
    }
    if (!value.is_number()) return fields.fail(path, "must be a number, got " + describe(value));
    const double d = value.get<double>();
    if (!(d >= -100 && d <= 100))
      return fields.fail(path, "must be between -100 and 100, got " + value.dump());
    s.logit_bias.emplace_back(id, static_cast<float>(d));
  }
}

void add_stop(FieldReader& fields, const std::string& path, const json& value,
              std::vector<std::string>& out) {
  if (!value.is_string()) return fields.fail(path, "must be a string, got " + describe(value));
  std::string s = value.get<std::string>();
  if (s.empty()) return fields.fail(path, "must not be empty");
  if (s.size() > kStopBytesMax)
    return fields.fail(path, fmt::format("is longer than {} bytes", kStopBytesMax));
  out.push_back(std::move(s));
}

void read_stop(FieldReader& fields, std::vector<std::string>& out) {
  const json* stop = fields.get("stop");
  if (stop == nullptr) return;
  if (!stop->is_array()) return add_stop(fields, "stop", *stop, out);
  if (stop->size() > kStopStringsMax) {
    return fields.fail("stop", fmt::format("at most {} strings, got {}", kStopStringsMax, stop->size()));
  }
  for (size_t i = 0; i < stop->size(); ++i) add_stop(fields, fmt::format("stop[{}]", i), (*stop)[i], out);
}

void read_stream(FieldReader& fields, ParsedRequest& out) {
  fields.boolean("stream", out.stream);
  const json* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return fields.fail("stream_options", "is only allowed with \"stream\": true");
  FieldReader inner(*options, "stream_options");
  inner.boolean("include_usage", out.include_usage);
  bool obfuscation = false;
  inner.boolean("include_obfuscation", obfuscation);
  if (obfuscation) inner.refuse("include_obfuscation", "is not implemented here");
  for (const auto& [name, value] : options->items()) {
    if (name == "include_usage" || name == "include_obfuscation" || value.is_null()) continue;
    inner.refuse(excerpt(name, kNameBytesMax), "is not implemented here");
  }
  if (!inner.ok()) fields.adopt(inner.error());
}

std::string random_hex() {
  std::random_device device;
  std::string out;
  for (int i = 0; i < 4; ++i) out += fmt::format("{:08x}", device());
  return out;
}

}  // namespace

Result<json> parse_body(std::string_view body) {
  Result<json> parsed = parse_json(body);
  if (!parsed.ok()) {
    Error e = std::move(parsed).error();
    e.code = Errc::kInvalidArgument;
    return e;
  }
  if (!parsed->is_object()) {
    return make_error(Errc::kInvalidArgument, "the body must be a JSON object, got " + describe(*parsed));
  }
  return parsed;
}

Status check_model(const json& body, const ModelContext& model) {
  FieldReader fields(body);
  std::string name = model.id;
  fields.string("model", name);
  LARIAT_RETURN_IF_ERROR(fields.status());
  if (name == model.id) return Ok{};
  return make_error(Errc::kNotFound,
                    fmt::format("the model `{}` is not served here; this server has `{}`",
                                excerpt(name, kNameBytesMax), model.id),
                    "model");
}

void read_max_tokens(FieldReader& fields, std::optional<int64_t>& out) {
  constexpr int64_t kMost = INT32_MAX;
  fields.integer("max_tokens", 0, kMost, out);
  std::optional<int64_t> newer;
  fields.integer("max_completion_tokens", 0, kMost, newer);
  if (newer && out && *newer != *out) {
    return fields.fail("max_completion_tokens",
                       fmt::format("is {} and max_tokens is {}: give one of them", *newer, *out));
  }
  if (newer) out = newer;
}

void read_common(FieldReader& fields, const ModelContext& model, ParsedRequest& out,
                 GenerateRequest& request) {
  refuse_known(fields, out.kind);
  read_sampling(fields, model.defaults, request.sampling);
  read_logit_bias(fields, model.vocab, request.sampling);
  read_stop(fields, request.stop);
  read_stream(fields, out);
  fields.integer("n", 1, kChoicesMax, request.n);
  std::optional<int64_t> seed;
  fields.integer("seed", INT64_MIN, INT64_MAX, seed);
  if (seed) request.seed = static_cast<uint64_t>(*seed);
  fields.boolean("ignore_eos", request.ignore_eos);
  fields.integer("min_tokens", 0, INT32_MAX, request.min_tokens);
  fields.string("cache_salt", request.cache_salt);
  fields.boolean("return_token_ids", out.return_token_ids);
  // Accepted without effect: they name the asker, and nothing here is kept by asker.
  std::string ignored;
  for (const std::string_view name : {"user", "safety_identifier", "prompt_cache_key"})
    fields.string(name, ignored);
  fields.object("metadata");
  request.end_ids = model.defaults.end_ids;
  out.n = request.n;
}

ApiResult<Ok> place_prompt(std::vector<int32_t> prompt, std::optional<int64_t> wanted, std::string_view param,
                           const ModelContext& model, GenerateRequest& request) {
  const int64_t limit = model.tokens_max();
  const auto tokens = static_cast<int64_t>(prompt.size());
  if (tokens > limit) {
    ApiError e = to_api_error(make_error(Errc::kInvalidArgument, "", std::string(param)));
    e.code = "context_length_exceeded";
    e.message = fmt::format("{}: the prompt has {} tokens; {}", param, tokens, model.limit_text());
    return e;
  }
  // The last token is never read again and needs no place.
  const int64_t room = limit - tokens + 1;
  request.max_tokens = static_cast<int32_t>(std::min({wanted.value_or(room), room, int64_t{INT32_MAX}}));
  if (request.min_tokens > request.max_tokens) {
    return field_error("min_tokens", fmt::format("is {}, and at most {} tokens can be generated",
                                                 request.min_tokens, request.max_tokens));
  }
  request.prompt = std::move(prompt);
  return Ok{};
}

void finish_request(const ModelContext& model, ParsedRequest& out) {
  out.id = (out.kind == ApiKind::kChat ? "chatcmpl-" : "cmpl-") + random_hex();
  out.model = model.id;
  out.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  const bool several = out.generations.size() > 1;
  for (size_t g = 0; g < out.generations.size(); ++g) {
    out.generations[g].id = several ? fmt::format("{}-{}", out.id, g) : out.id;
  }
}

}  // namespace lariat
