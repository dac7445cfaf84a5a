// Sampling defaults that a model brings along in generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lariat {

// Absent fields stay unset: the API's own defaults follow (docs/design.md §8).
struct GenerationDefaults {
  std::optional<bool> do_sample;  // false means temperature 0
  std::optional<double> temperature;
  std::optional<int32_t> top_k;  // 0: off
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int32_t> bos_id;
  std::vector<int32_t> eos_ids;    // empty: the config's hold
  std::vector<std::string> notes;  // settings that are read by nobody here
  friend bool operator==(const GenerationDefaults&, const GenerationDefaults&) = default;
};

// kCorruptData listing every value of a wrong type or range; ids must be below `vocab`.
Result<GenerationDefaults> parse_generation_config(std::string_view json, int64_t vocab);

}  // namespace lariat
