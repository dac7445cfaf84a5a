// Any bytes as config.json and generation_config.json: refused with a bounded message, or a config whose
// derived numbers are all in range.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "model/config.h"
#include "model/generation_config.h"
#include "model/required_tensors.h"
#include "model/rope_table.h"

namespace {

void check_config(const lariat::DecoderConfig& c) {
  LARIAT_CHECK(c.heads % c.kv_heads == 0 && c.head_dim % 2 == 0, "{} heads over {}", c.heads, c.kv_heads);
  LARIAT_CHECK(c.masks.size() == static_cast<size_t>(c.layers), "{} masks", c.masks.size());
  LARIAT_CHECK(lariat::kv_bytes_per_token(c, lariat::DType::kF32) > 0, "kv bytes");
  if (c.layers <= 64) LARIAT_CHECK(lariat::parameter_count(c) > 0, "parameters");
  const lariat::RopeTable table = lariat::make_rope_table(c.rope, c.head_dim);
  LARIAT_CHECK(std::isfinite(table.attention_factor), "attention factor");
  for (const float f : table.inv_freq) LARIAT_CHECK(std::isfinite(f) && f >= 0, "frequency {}", f);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = lariat::parse_config(text);
  if (config.ok()) {
    check_config(*config);
  } else {
    LARIAT_CHECK(config.error().message.size() < 20'000, "message of {} bytes",
                 config.error().message.size());
  }
  const auto generation = lariat::parse_generation_config(text, 1000);
  if (!generation.ok()) LARIAT_CHECK(generation.error().message.size() < 20'000, "message");
  return 0;
}
