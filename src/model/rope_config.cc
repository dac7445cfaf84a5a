#include "model/rope_config.h"

#include <fmt/core.h>

#include <array>

namespace lariat {
namespace {

constexpr int64_t kPositionMax = int64_t{1} << 30;

// Keys that some rope type reads or that carry no meaning; any other key that is set is refused, since an
// ignored rope parameter gives answers that fall apart only far into the context.
constexpr std::array<std::string_view, 16> kKnownKeys = {"rope_type",
                                                         "type",
                                                         "rope_theta",
                                                         "factor",
                                                         "low_freq_factor",
                                                         "high_freq_factor",
                                                         "original_max_position_embeddings",
                                                         "beta_fast",
                                                         "beta_slow",
                                                         "attention_factor",
                                                         "mscale",
                                                         "mscale_all_dim",
                                                         "truncate",
                                                         "partial_rotary_factor",
                                                         "finetuned",
                                                         "max_position_embeddings"};

// {"full_attention": {..}, "sliding_attention": {..}}: one rope a layer type. Equal ones are one.
const nlohmann::json* flatten(const nlohmann::json& dict, const std::string& key, Problems& problems) {
  const nlohmann::json* first = nullptr;
  bool nested = false;
  bool equal = true;
  for (const auto& [name, value] : dict.items()) {
    if (name != "full_attention" && name != "sliding_attention") continue;
    nested = true;
    if (!value.is_object()) {
      problems.add(fmt::format("{}.{} is {}, must be an object", key, name, show(value)));
      return nullptr;
    }
    equal = equal && (!first || *first == value);
    first = &value;
  }
  if (!nested) return &dict;
  if (equal) return first;
  problems.add(key + ": different rotary parameters for full and sliding attention are not supported");
  return nullptr;
}

// The dictionary that holds the type, whatever it is called; nullptr if there is none or it is at fault.
const nlohmann::json* find_dict(const JsonFields& config, std::string* key) {
  const nlohmann::json* found = nullptr;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const nlohmann::json* dict = config.get(name);
    if (!dict) continue;
    if (!dict->is_object()) {
      config.problem(fmt::format("{} is {}, must be an object", name, show(*dict)));
      continue;
    }
    const nlohmann::json* flat = flatten(*dict, name, config.problems());
    if (!flat) return nullptr;
    if (found && *flat != *found) {
      config.problem("rope_parameters and rope_scaling are both given and differ");
      return nullptr;
    }
    found = flat;
    *key = name;
  }
  return found;
}

std::optional<RopeKind> parse_kind(const JsonFields& dict) {
  const auto modern = dict.text("rope_type");
  const auto legacy = dict.text("type");
  if (modern && legacy && *modern != *legacy) {
    dict.problem(fmt::format("{} is \"{}\" and {} is \"{}\"", dict.name("rope_type"), printable(*modern),
                             dict.name("type"), printable(*legacy)));
    return std::nullopt;
  }
  const std::string kind = modern ? *modern : legacy ? *legacy : "default";
  if (kind == "default") return RopeKind::kDefault;
  if (kind == "linear") return RopeKind::kLinear;
  if (kind == "llama3") return RopeKind::kLlama3;
  if (kind == "yarn") return RopeKind::kYarn;
  dict.problem(fmt::format("{} \"{}\" is not supported (default, linear, llama3, yarn are)",
                           dict.name("rope_type"), printable(kind)));
  return std::nullopt;
}

void check_keys(const JsonFields& dict) {
  for (const auto& [key, value] : dict.object().items()) {
    const bool known = std::find(kKnownKeys.begin(), kKnownKeys.end(), key) != kKnownKeys.end();
    if (!known && !value.is_null()) dict.problem(dict.name(printable(key)) + " is not supported");
  }
  if (const auto* partial = dict.get("partial_rotary_factor"); partial && *partial != 1) {
    dict.problem(dict.name("partial_rotary_factor") + " is " + show(*partial) + ", only 1 is supported");
  }
}

double require_factor(const JsonFields& dict) {
  if (!dict.get("factor")) dict.problem(dict.name("factor") + " is missing");
  return dict.number("factor", 1.0, 1e6).value_or(1.0);
}

int64_t original_positions(const JsonFields& dict, const JsonFields& config, int64_t max_position) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  if (dict.get(kKey)) return dict.integer(kKey, 1, kPositionMax).value_or(1);
  return config.integer(kKey, 1, kPositionMax).value_or(max_position);
}

void parse_llama3(const JsonFields& dict, const JsonFields& config, int64_t max_position, RopeConfig& rope) {
  rope.factor = require_factor(dict);
  for (const char* key : {"low_freq_factor", "high_freq_factor"}) {
    if (!dict.get(key)) dict.problem(dict.name(key) + " is missing");
  }
  rope.low_freq_factor = dict.number("low_freq_factor", 1e-6, 1e6).value_or(1.0);
  rope.high_freq_factor = dict.number("high_freq_factor", 1e-6, 1e6).value_or(4.0);
  if (rope.low_freq_factor >= rope.high_freq_factor) {
    dict.problem(fmt::format("{} ({}) must be less than high_freq_factor ({})", dict.name("low_freq_factor"),
                             rope.low_freq_factor, rope.high_freq_factor));
  }
  rope.original_max_position = original_positions(dict, config, max_position);
}

void parse_yarn(const JsonFields& dict, const JsonFields& config, int64_t max_position, RopeConfig& rope) {
  rope.original_max_position = original_positions(dict, config, max_position);
  if (dict.get("factor")) {
    rope.factor = require_factor(dict);
  } else if (dict.written("factor")) {  // an explicit null: the ratio of the two contexts
    rope.factor =
        std::max(1.0, static_cast<double>(max_position) / static_cast<double>(rope.original_max_position));
  } else {
    dict.problem(dict.name("factor") + " is missing");
  }
  // transformers reads `value or default`: 0 means the default.
  const auto or_default = [&](const char* key, double fallback) {
    const double value = dict.number(key, 0.0, 1e6).value_or(0.0);
    return value > 0 ? value : fallback;
  };
  rope.beta_fast = or_default("beta_fast", 32.0);
  rope.beta_slow = or_default("beta_slow", 1.0);
  if (rope.beta_fast < rope.beta_slow) {
    dict.problem(fmt::format("{} ({}) must not be less than beta_slow ({})", dict.name("beta_fast"),
                             rope.beta_fast, rope.beta_slow));
  }
  rope.attention_factor = dict.number("attention_factor", 1e-6, 1e6);
  rope.mscale = dict.number("mscale", 0.0, 1e6).value_or(0.0);
  rope.mscale_all_dim = dict.number("mscale_all_dim", 0.0, 1e6).value_or(0.0);
  rope.truncate = dict.boolean("truncate").value_or(true);
}

}  // namespace

RopeConfig parse_rope(const JsonFields& config, int64_t max_position) {
  RopeConfig rope;
  constexpr double kThetaMax = 1e15;
  const auto outer_theta = config.number("rope_theta", 1.0 + 1e-6, kThetaMax);
  rope.theta = outer_theta.value_or(10000.0);
  std::string key;
  const nlohmann::json* found = find_dict(config, &key);
  if (!found) return rope;
  const JsonFields dict(*found, key + ".", config.problems());
  check_keys(dict);
  if (const auto theta = dict.number("rope_theta", 1.0 + 1e-6, kThetaMax)) {
    if (outer_theta && *outer_theta != *theta) {
      config.problem(
          fmt::format("rope_theta is {} and {} is {}", *outer_theta, dict.name("rope_theta"), *theta));
    }
    rope.theta = *theta;
  }
  const auto kind = parse_kind(dict);
  if (!kind) return rope;
  rope.kind = *kind;
  if (rope.kind == RopeKind::kLinear) rope.factor = require_factor(dict);
  if (rope.kind == RopeKind::kLlama3) parse_llama3(dict, config, max_position, rope);
  if (rope.kind == RopeKind::kYarn) parse_yarn(dict, config, max_position, rope);
  return rope;
}

}  // namespace lariat
