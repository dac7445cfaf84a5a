#include "model/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "model/json_fields.h"
#include "model/rope_config.h"

namespace lariat {
namespace {

constexpr int64_t kLayersMax = 4096;
constexpr int64_t kHeadsMax = 1 << 14;
constexpr int64_t kHeadDimMax = 1024;
constexpr int64_t kWidthMax = 1 << 20;
constexpr int64_t kFfnMax = 1 << 22;
constexpr int64_t kPositionMax = 1 << 30;  // positions are int32
constexpr size_t kEosMax = 64;

// What transformers 5 assumes of an architecture where config.json is silent.
struct Family {
  Architecture architecture;
  std::string_view model_type;
  std::string_view model_class;
  int64_t kv_heads_default;  // 0: as many as query heads
  int64_t head_dim_default;  // 0: hidden / heads
  bool always_qkv_bias;
  bool bias_by_config;  // attention_bias switches q, k, v and o
  bool qk_norm;
};

constexpr std::array<Family, 4> kFamilies = {{
    {Architecture::kLlama, "llama", "LlamaForCausalLM", 0, 0, false, true, false},
    {Architecture::kQwen2, "qwen2", "Qwen2ForCausalLM", 32, 0, true, false, false},
    {Architecture::kQwen3, "qwen3", "Qwen3ForCausalLM", 32, 128, false, true, true},
    {Architecture::kMistral, "mistral", "MistralForCausalLM", 8, 0, false, false, false},
}};

const Family& family_of(Architecture architecture) {
  const auto it = std::find_if(kFamilies.begin(), kFamilies.end(),
                               [&](auto& f) { return f.architecture == architecture; });
  LARIAT_CHECK(it != kFamilies.end(), "architecture {}", static_cast<int>(architecture));
  return *it;
}

const Family* family_of_type(std::string_view type) {
  const auto it =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](auto& f) { return f.model_type == type; });
  return it == kFamilies.end() ? nullptr : &*it;
}

const Family* family_of_class(std::string_view name) {
  const auto it =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](auto& f) { return f.model_class == name; });
  return it == kFamilies.end() ? nullptr : &*it;
}

// `model_type` and `architectures` must both be ours and agree; one may be absent.
const Family* parse_family(const JsonFields& f) {
  constexpr std::string_view kSupported = " is not supported (Llama, Qwen2, Qwen3 and Mistral are)";
  const Family* by_type = nullptr;
  const Family* by_class = nullptr;
  if (const auto type = f.text("model_type")) {
    by_type = family_of_type(*type);
    if (!by_type) f.problem(fmt::format("model_type \"{}\"{}", printable(*type), kSupported));
  }
  if (const nlohmann::json* list = f.get("architectures")) {
    if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
      f.problem("architectures must be a list of one string");
    } else {
      const auto& name = list->front().get_ref<const std::string&>();
      by_class = family_of_class(name);
      if (!by_class) f.problem(fmt::format("architecture \"{}\"{}", printable(name), kSupported));
    }
  }
  if (!f.get("model_type") && !f.get("architectures")) {
    f.problem("neither model_type nor architectures is given");
  }
  if (by_type && by_class && by_type != by_class) {
    f.problem(fmt::format("model_type \"{}\" and architecture \"{}\" do not agree", by_type->model_type,
                          by_class->model_class));
  }
  return by_type ? by_type : by_class;
}

// Keys that change the computation in models close to ours. Set to anything but their neutral value they are
// refused: an answer that is quietly wrong is the worst answer.
constexpr std::string_view kMustBeUnset[] = {
    // attention
    "attention_chunk_size", "attention_multiplier", "attention_sinks", "attn_logit_softcapping",
    "attn_output_gate", "attn_temperature_tuning", "cla_share_factor", "clip_qkv", "cross_attention_layers",
    "kv_lora_rank", "linear_num_key_heads", "num_kv_shared_layers", "q_lora_rank", "qk_layernorm", "qk_norm",
    "query_pre_attn_scalar", "sliding_window_pattern", "use_bidirectional_attention", "use_logn_attn",
    "use_qk_norm",
    // positions
    "alibi", "no_rope_layer_interval", "no_rope_layers", "rope_interleave", "rope_interleaved",
    "rope_local_base_freq", "rotary_dim", "use_alibi", "use_dynamic_ntk", "use_mrope",
    // experts and other blocks
    "add_cross_attention", "is_encoder_decoder", "n_routed_experts", "num_experts", "num_local_experts",
    "num_nextn_predict_layers", "text_config", "use_parallel_residual", "vision_config",
    // scales: muP and MiniCPM
    "dim_model_base", "final_logit_softcapping", "mup_enabled", "mup_width_multiplier", "scale_depth",
    "use_mup",
    // quantized weights under other names than quantization_config
    "compression_config", "quantization"};
constexpr std::string_view kMustBeOne[] = {
    "embedding_multiplier", "logit_scale", "logits_scaling", "partial_rotary_factor",
    "residual_multiplier",  "rope_pct",    "rotary_pct",     "scale_emb"};
// Of these, only the values listed.
struct Choice {
  std::string_view key;
  std::array<std::string_view, 2> values;
};
constexpr Choice kMustBeOneOf[] = {{"hidden_act", {"silu", "swish"}},
                                   {"hidden_activation", {"silu", "swish"}},
                                   {"position_embedding_type", {"rope", "rotary"}}};

void refuse_unimplemented(const JsonFields& f) {
  for (const auto key : kMustBeUnset) {
    const nlohmann::json* v = f.get(key);
    if (!v || *v == false || *v == 0 || (v->is_structured() && v->empty())) continue;
    f.problem(fmt::format("{} is {}: not supported", key, show(*v)));
  }
  for (const auto key : kMustBeOne) {
    if (const nlohmann::json* v = f.get(key); v && *v != 1) {
      f.problem(fmt::format("{} is {}, only 1 is supported", key, show(*v)));
    }
  }
  if (const nlohmann::json* q = f.get("quantization_config"); q && !(q->is_object() && q->empty())) {
    const auto method = q->is_object() ? q->find("quant_method") : q->end();
    f.problem("quantization_config" + (method == q->end() ? std::string() : " (" + show(*method) + ")") +
              ": quantized weights are not supported");
  }
  for (const auto& [key, values] : kMustBeOneOf) {
    const auto text = f.text(key);
    if (text && *text != values[0] && *text != values[1]) {
      f.problem(fmt::format("{} \"{}\" is not supported ({} is)", key, printable(*text), values[0]));
    }
  }
  if (const nlohmann::json* causal = f.get("is_causal"); causal && *causal != true) {
    f.problem(fmt::format("is_causal is {}, only true is supported", show(*causal)));
  }
  for (const auto key : {"hidden_act", "rms_norm_eps", "rope_theta"}) f.refuse_null(key);
}

// The head size, if it can be told. Without hidden and heads the fault is theirs.
std::optional<int64_t> parse_head_dim(const JsonFields& f, const Family& family,
                                      std::optional<int64_t> hidden, std::optional<int64_t> heads) {
  if (f.get("head_dim")) return f.integer("head_dim", 2, kHeadDimMax);
  if (!f.written("head_dim") && family.head_dim_default > 0) return family.head_dim_default;
  if (!hidden || !heads) return std::nullopt;
  const int64_t size = *hidden / *heads;
  if (*hidden % *heads == 0 && size >= 2 && size <= kHeadDimMax) return size;
  f.problem(
      fmt::format("hidden_size {} over num_attention_heads {} gives no head size, and head_dim is not given",
                  *hidden, *heads));
  return std::nullopt;
}

// A size that is at fault counts as the least possible one from here on; nothing is said of what would follow
// from that.
void parse_sizes(const JsonFields& f, const Family& family, DecoderConfig& c) {
  c.layers = f.required("num_hidden_layers", 1, kLayersMax).value_or(0);
  const auto hidden = f.required("hidden_size", 1, kWidthMax);
  const auto heads = f.required("num_attention_heads", 1, kHeadsMax);
  c.hidden = hidden.value_or(1);
  c.heads = heads.value_or(1);
  c.ffn = f.required("intermediate_size", 1, kFfnMax).value_or(1);
  c.vocab = f.required("vocab_size", 1, kVocabMax).value_or(kVocabMax);
  c.max_position = f.required("max_position_embeddings", 1, kPositionMax).value_or(1);
  const bool silent = !f.written("num_key_value_heads") && family.kv_heads_default > 0;
  c.kv_heads =
      f.integer("num_key_value_heads", 1, kHeadsMax).value_or(silent ? family.kv_heads_default : c.heads);
  if (heads && c.heads % c.kv_heads != 0) {
    f.problem(fmt::format("num_attention_heads ({}) must be a multiple of num_key_value_heads ({})", c.heads,
                          c.kv_heads));
  }
  c.rms_eps = f.number("rms_norm_eps", 1e-12, 1.0).value_or(1e-6);
  c.head_dim = parse_head_dim(f, family, hidden, heads).value_or(2);
  if (c.head_dim % 2 != 0)
    f.problem(fmt::format("head size {} is odd: rotary embedding needs pairs", c.head_dim));
}

void parse_switches(const JsonFields& f, const Family& family, DecoderConfig& c) {
  c.tie_embeddings = f.boolean("tie_word_embeddings").value_or(false);
  c.qk_norm = family.qk_norm;
  const auto attention_bias = f.boolean("attention_bias");
  if (family.bias_by_config) {
    c.qkv_bias = c.o_bias = attention_bias.value_or(false);
  } else {
    c.qkv_bias = family.always_qkv_bias;
    if (attention_bias && *attention_bias != family.always_qkv_bias) {
      f.problem(
          fmt::format("attention_bias is {}: not supported for {}", *attention_bias, family.model_type));
    }
  }
  c.mlp_bias = f.boolean("mlp_bias").value_or(false);
  if (c.mlp_bias && family.architecture != Architecture::kLlama) {
    f.problem(fmt::format("mlp_bias is true: not supported for {}", family.model_type));
  }
}

// The window that layers of type "sliding_attention" have; 0 if the config has none.
int64_t parse_window(const JsonFields& f, Architecture architecture) {
  const auto window = f.integer("sliding_window", 1, kPositionMax);
  switch (architecture) {
    case Architecture::kLlama:
      if (f.get("sliding_window")) f.problem("sliding_window is set: not supported for llama");
      return 0;
    case Architecture::kMistral:
      return window.value_or(f.written("sliding_window") ? 0 : 4096);
    case Architecture::kQwen2:
    case Architecture::kQwen3:
      if (!f.boolean("use_sliding_window").value_or(false)) return 0;
      return window.value_or(f.written("sliding_window") ? 0 : 4096);
  }
  return 0;
}

std::vector<LayerMask> parse_masks(const JsonFields& f, const DecoderConfig& c) {
  const int64_t window = parse_window(f, c.architecture);
  // Mistral knows no layer types: its window is on every layer. Qwen's begins at max_window_layers.
  const bool qwen = c.architecture == Architecture::kQwen2 || c.architecture == Architecture::kQwen3;
  const int64_t first = qwen ? f.integer("max_window_layers", 0, kPositionMax).value_or(28) : 0;
  std::vector<LayerMask> masks(static_cast<size_t>(c.layers));
  for (int64_t i = 0; i < c.layers; ++i) masks[static_cast<size_t>(i)].window = i >= first ? window : 0;
  const nlohmann::json* types = f.get("layer_types");
  if (!types || masks.empty()) return masks;
  if (!types->is_array() || types->size() != masks.size()) {
    f.problem(fmt::format("layer_types must be a list of num_hidden_layers ({}) strings", c.layers));
    return masks;
  }
  for (size_t i = 0; i < masks.size(); ++i) {
    const nlohmann::json& type = (*types)[i];
    const bool sliding = type == "sliding_attention";
    if (!sliding && type != "full_attention") {
      f.problem(fmt::format("layer_types[{}] is {}: not supported", i, show(type)));
    } else if (sliding && window == 0) {
      f.problem(fmt::format("layer_types[{}] is sliding_attention, but no sliding window is set", i));
    } else if (!qwen && sliding != (masks[i].window > 0)) {
      f.problem(fmt::format("layer_types[{}] is {}: not supported for {}", i, show(type),
                            architecture_name(c.architecture)));
    } else {
      masks[i].window = sliding ? window : 0;
    }
  }
  return masks;
}

std::optional<DType> parse_dtype_claim(const JsonFields& f) {
  const auto modern = f.text("dtype");
  const auto name = modern ? modern : f.text("torch_dtype");
  if (!name || *name == "auto") return std::nullopt;
  if (*name == "float32") return DType::kF32;
  if (*name == "bfloat16") return DType::kBF16;
  if (*name == "float16") return DType::kF16;
  f.problem(fmt::format("dtype \"{}\" is not supported (float32, bfloat16, float16 are)", printable(*name)));
  return std::nullopt;
}

}  // namespace

std::string_view architecture_name(Architecture architecture) {
  return family_of(architecture).model_type;
}

std::string_view architecture_class(Architecture architecture) {
  return family_of(architecture).model_class;
}

Result<DecoderConfig> parse_config(std::string_view json) {
  constexpr std::string_view kWhere = "config.json";
  auto parsed = parse_json(json, {.depth_max = 32, .reject_duplicate_keys = true});
  if (!parsed.ok()) return parsed.error().in(kWhere);
  if (!parsed->is_object()) return make_error(Errc::kCorruptData, "config.json: not a JSON object");
  Problems problems;
  const JsonFields f(*parsed, "", problems);
  const Family* family = parse_family(f);
  // Another architecture's fields would only produce noise.
  if (!family) return problems.error(Errc::kUnsupported, kWhere);

  DecoderConfig c;
  c.architecture = family->architecture;
  refuse_unimplemented(f);
  parse_sizes(f, *family, c);
  parse_switches(f, *family, c);
  c.masks = parse_masks(f, c);
  c.rope = parse_rope(f, c.max_position);
  c.dtype = parse_dtype_claim(f);
  const auto id_max = static_cast<int32_t>(c.vocab - 1);
  if (const auto bos = f.integer("bos_token_id", 0, id_max)) c.bos_id = static_cast<int32_t>(*bos);
  c.eos_ids = f.ids("eos_token_id", id_max, kEosMax);
  if (!problems.empty()) return problems.error(Errc::kUnsupported, kWhere);
  return c;
}

int64_t kv_bytes_per_token(const DecoderConfig& c, DType kv_type) {
  return 2 * c.layers * c.kv_heads * c.head_dim * static_cast<int64_t>(dtype_size(kv_type));
}

}  // namespace lariat
