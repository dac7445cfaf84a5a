#include "model/generation_config.h"

#include <array>

#include "base/json.h"
#include "model/json_fields.h"

namespace lariat {
namespace {

// Settings of the reference's generate() that change its output and have no counterpart here, with the value
// that switches each off.
void note_ignored(const JsonFields& f, GenerationDefaults& out) {
  const std::array<std::pair<const char*, nlohmann::json>, 14> neutral = {
      {{"num_beams", 1},
       {"num_beam_groups", 1},
       {"typical_p", 1.0},
       {"epsilon_cutoff", 0.0},
       {"eta_cutoff", 0.0},
       {"diversity_penalty", 0.0},
       {"encoder_repetition_penalty", 1.0},
       {"no_repeat_ngram_size", 0},
       {"penalty_alpha", 0.0},
       {"bad_words_ids", nullptr},
       {"suppress_tokens", nullptr},
       {"begin_suppress_tokens", nullptr},
       {"forced_bos_token_id", nullptr},
       {"guidance_scale", 1.0}}};
  for (const auto& [key, off] : neutral) {
    const nlohmann::json* v = f.get(key);
    if (v && *v != off) {
      out.notes.push_back("generation_config.json: " + std::string(key) + " is ignored (" + show(*v) + ")");
    }
  }
}

}  // namespace

Result<GenerationDefaults> parse_generation_config(std::string_view json, int64_t vocab) {
  constexpr std::string_view kWhere = "generation_config.json";
  constexpr size_t kEosMax = 64;
  const auto parsed = parse_json(json, {.depth_max = 32, .reject_duplicate_keys = true});
  if (!parsed.ok()) return parsed.error().in(kWhere);
  if (!parsed->is_object())
    return make_error(Errc::kCorruptData, "generation_config.json: not a JSON object");
  Problems problems;
  const JsonFields f(*parsed, "", problems);
  GenerationDefaults out;
  out.do_sample = f.boolean("do_sample");
  out.temperature = f.number("temperature", 0.0, 100.0);
  if (const auto k = f.integer("top_k", 0, INT32_MAX)) out.top_k = static_cast<int32_t>(*k);
  out.top_p = f.number("top_p", 0.0, 1.0);
  if (out.top_p == 0.0) problems.add("top_p is 0, must be greater");
  out.min_p = f.number("min_p", 0.0, 1.0);
  out.repetition_penalty = f.number("repetition_penalty", 0.01, 100.0);
  const auto id_max = static_cast<int32_t>(vocab - 1);
  if (const auto bos = f.integer("bos_token_id", 0, id_max)) out.bos_id = static_cast<int32_t>(*bos);
  out.eos_ids = f.ids("eos_token_id", id_max, kEosMax);
  note_ignored(f, out);
  if (!problems.empty()) return problems.error(Errc::kCorruptData, kWhere);
  return out;
}

}  // namespace lariat
