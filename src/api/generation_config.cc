// generation_config.json: the model's own sampling defaults.
#include "api/field_reader.h"
#include "api/model_context.h"
#include "base/json.h"

namespace lariat {
namespace {

template <typename T>
std::optional<T> if_present(const FieldReader& fields, std::string_view name, T value) {
  return fields.get(name) == nullptr ? std::nullopt : std::optional<T>(value);
}

Status read_end_ids(FieldReader& fields, std::vector<int32_t>& out) {
  const nlohmann::json* v = fields.get("eos_token_id");
  if (v == nullptr) return Ok{};
  const nlohmann::json list = v->is_array() ? *v : nlohmann::json::array({*v});
  for (const auto& item : list) {
    Result<int64_t> id = strict_integer(item, 0, INT32_MAX);
    if (!id.ok()) return id.error().in("eos_token_id");
    out.push_back(static_cast<int32_t>(*id));
  }
  return Ok{};
}

}  // namespace

Result<SamplingDefaults> parse_sampling_defaults(std::string_view text) {
  const auto corrupt = [](Error e) {
    e.code = Errc::kCorruptData;
    return e.in("generation_config.json");
  };
  Result<nlohmann::json> json = parse_json(text);
  if (!json.ok()) return corrupt(json.error());
  if (!json->is_object()) return corrupt(make_error(Errc::kCorruptData, "not an object"));
  FieldReader fields(*json);
  bool do_sample = true;
  float temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  int32_t top_k = 0;
  fields.boolean("do_sample", do_sample);
  fields.number("temperature", 0, 100, temperature);
  fields.number("top_p", 0, 1, top_p);
  fields.integer("top_k", 0, INT32_MAX, top_k);
  fields.number("min_p", 0, 1, min_p);
  fields.number("repetition_penalty", 1e-6, 100, repetition_penalty);
  if (!fields.ok()) return corrupt(fields.error());
  SamplingDefaults d;
  d.temperature = if_present(fields, "temperature", temperature);
  if (!do_sample) d.temperature = 0.0f;
  d.top_p = if_present(fields, "top_p", top_p);
  d.top_k = if_present(fields, "top_k", top_k);
  d.min_p = if_present(fields, "min_p", min_p);
  d.repetition_penalty = if_present(fields, "repetition_penalty", repetition_penalty);
  Status ends = read_end_ids(fields, d.end_ids);
  if (!ends.ok()) return corrupt(ends.error());
  return d;
}

}  // namespace lariat
