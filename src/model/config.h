// What a decoder is, read from Hugging Face's config.json and then constant.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace lariat {

enum class Architecture : uint8_t { kLlama, kQwen2, kQwen3, kMistral };
enum class Activation : uint8_t { kSilu };
enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3, kYarn };

std::string_view architecture_name(Architecture architecture);   // "llama", "qwen2", ...
std::string_view architecture_class(Architecture architecture);  // "LlamaForCausalLM", ...

// Rotary embedding as the file gives it; model/rope_table.h makes the frequencies. Fields of other kinds keep
// their defaults, so that equal behaviour compares equal.
struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                          // linear, llama3, yarn
  double low_freq_factor = 1.0;                 // llama3
  double high_freq_factor = 4.0;                // llama3
  int64_t original_max_position = 0;            // llama3, yarn
  double beta_fast = 32.0;                      // yarn
  double beta_slow = 1.0;                       // yarn
  std::optional<double> attention_factor = {};  // yarn, if given
  double mscale = 0.0;                          // yarn; 0: not given
  double mscale_all_dim = 0.0;                  // yarn; 0: not given
  bool truncate = true;                         // yarn: ramp bounds rounded outward to whole pairs
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Which keys a layer's queries see: causal, or causal within a window (0 <= qpos - kpos < window).
struct LayerMask {
  int64_t window = 0;  // tokens; 0: no window
  friend bool operator==(const LayerMask&, const LayerMask&) = default;
};

struct DecoderConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t layers = 0;
  int64_t hidden = 0;    // width of the residual stream
  int64_t heads = 0;     // H, query heads
  int64_t kv_heads = 0;  // G; heads % kv_heads == 0
  int64_t head_dim = 0;  // D, even; not always hidden / heads
  int64_t ffn = 0;       // width of the gated MLP
  int64_t vocab = 0;
  double rms_eps = 1e-6;
  bool tie_embeddings = false;  // the output head is the embedding
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm over D of every q and k head, before rope
  Activation activation = Activation::kSilu;
  RopeConfig rope;
  std::vector<LayerMask> masks;  // [layers]
  int64_t max_position = 0;      // the context the model was made for
  std::optional<int32_t> bos_id;
  std::vector<int32_t> eos_ids;
  std::optional<DType> dtype;  // as the config claims; the tensors decide
  friend bool operator==(const DecoderConfig&, const DecoderConfig&) = default;
};

constexpr size_t kConfigBytesMax = 8'000'000;
constexpr int64_t kVocabMax = 1 << 24;

// Reads the old layout (rope_theta, rope_scaling with `type` or `rope_type`) and the new one
// (rope_parameters). Absent fields take the architecture's defaults in transformers 5. kUnsupported or
// kCorruptData listing every fault at once: an architecture or value that is not implemented is refused by
// name, a number out of range with its range. Keys that change nothing here are ignored.
Result<DecoderConfig> parse_config(std::string_view json);

// Bytes that one token's K and V take over all layers: 2 * layers * kv_heads * head_dim * element.
int64_t kv_bytes_per_token(const DecoderConfig& config, DType kv_type);

}  // namespace lariat
