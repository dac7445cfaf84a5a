#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "model/required_tensors.h"
#include "weights/tensor_source.h"

namespace lariat {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kGolden = std::filesystem::path(LARIAT_SHARED_DIR) / "golden";
const std::vector<std::string> kSupported = {"llama-d128",  "llama-d64",      "llama-gqa", "llama-linear",
                                             "llama-yarn",  "llama-mha-bias", "qwen2",     "llama31-rope",
                                             "mistral-swa", "qwen3-d128",     "qwen3-gqa", "qwen3-mqa"};

json read_json(const std::filesystem::path& path) {
  const auto text = read_file(path, 1'000'000);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return json::parse(text.ok() ? *text : "{}");
}

// As transformers 4 wrote it.
json old_layout(json c, const char* type_key) {
  json rope = c["rope_parameters"];
  c.erase("rope_parameters");
  c["rope_theta"] = rope["rope_theta"];
  rope.erase("rope_theta");
  const std::string type = rope["rope_type"];
  rope.erase("rope_type");
  if (type == "default") {
    c["rope_scaling"] = nullptr;
  } else {
    rope[type_key] = type;
    c["rope_scaling"] = rope;
  }
  c["torch_dtype"] = c["dtype"];
  c.erase("dtype");
  return c;
}

json toy() {
  return json::parse(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,
    "intermediate_size":160,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":512,
    "max_position_embeddings":4096,"rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu",
    "tie_word_embeddings":false,"bos_token_id":1,"eos_token_id":2,"torch_dtype":"float32"})");
}

DecoderConfig parsed(const json& c) {
  const auto r = parse_config(c.dump());
  EXPECT_TRUE(r.ok()) << r.error().message;
  return r.ok() ? *r : DecoderConfig{};
}

std::string refusal(const json& c) {
  const auto r = parse_config(c.dump());
  EXPECT_FALSE(r.ok()) << c.dump();
  return r.ok() ? "" : r.error().message;
}

TEST(Config, GoldenInBothLayouts) {
  if (!std::filesystem::exists(kGolden)) GTEST_SKIP() << "no golden data at " << kGolden;
  for (const std::string& name : kSupported) {
    const json c = read_json(kGolden / name / "config.json");
    const DecoderConfig config = parsed(c);
    EXPECT_EQ(config.vocab, 512) << name;
    EXPECT_EQ(parsed(old_layout(c, "rope_type")), config) << name;
    EXPECT_EQ(parsed(old_layout(c, "type")), config) << name;
  }
}

TEST(Config, GoldenWeightsAreWhatTheConfigRequires) {
  if (!std::filesystem::exists(kGolden)) GTEST_SKIP() << "no golden data at " << kGolden;
  for (const std::string& name : kSupported) {
    const DecoderConfig config = parsed(read_json(kGolden / name / "config.json"));
    const auto source = open_hf_source(*folder_files(kGolden / name));
    ASSERT_TRUE(source.ok()) << source.error().message;
    std::string note;
    const Status s = check_requirements(**source, required_tensors(config), &note);
    EXPECT_TRUE(s.ok()) << name << ": " << s.error().message;
    EXPECT_EQ(note, "") << name;
  }
}

TEST(Config, OtherGoldenArchitecturesAreRefusedByName) {
  if (!std::filesystem::exists(kGolden)) GTEST_SKIP() << "no golden data at " << kGolden;
  for (const auto& [folder, name] :
       std::vector<std::pair<std::string, std::string>>{{"deepseek-v2-lite", "DeepseekV2ForCausalLM"},
                                                        {"deepseek-v3", "deepseek_v3"},
                                                        {"glm4-moe-lite", "Glm4MoeLiteForCausalLM"},
                                                        {"qwen3-moe", "qwen3_moe"},
                                                        {"qwen3-next", "Qwen3NextForCausalLM"},
                                                        {"qwen3.5-text", "qwen3_5_text"}}) {
    EXPECT_THAT(refusal(read_json(kGolden / folder / "config.json")), HasSubstr(name));
  }
}

TEST(Config, EmbeddedModel) {
  const DecoderConfig c =
      parsed(read_json(std::filesystem::path(LARIAT_SOURCE_DIR) / "models/needle-5m/config.json"));
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.max_position, 131072);
  EXPECT_TRUE(c.tie_embeddings);
  EXPECT_EQ(c.dtype, DType::kBF16);
  EXPECT_EQ(c.eos_ids, std::vector<int32_t>{5});
}

TEST(Config, ArchitecturesDiffer) {
  json c = toy();
  EXPECT_FALSE(parsed(c).qkv_bias);
  c["attention_bias"] = true;
  EXPECT_TRUE(parsed(c).qkv_bias && parsed(c).o_bias);
  c = toy();
  c.erase("num_key_value_heads");
  EXPECT_EQ(parsed(c).kv_heads, 4);

  c = toy();
  c["architectures"] = {"Qwen2ForCausalLM"};
  c["model_type"] = "qwen2";
  EXPECT_TRUE(parsed(c).qkv_bias);
  EXPECT_FALSE(parsed(c).o_bias);
  EXPECT_FALSE(parsed(c).qk_norm);

  c["architectures"] = {"Qwen3ForCausalLM"};
  c["model_type"] = "qwen3";
  EXPECT_TRUE(parsed(c).qk_norm);
  EXPECT_FALSE(parsed(c).qkv_bias);
  EXPECT_EQ(parsed(c).head_dim, 128);  // Qwen3's default, not hidden / heads
}

TEST(Config, Windows) {
  json c = toy();
  c["architectures"] = {"MistralForCausalLM"};
  c["model_type"] = "mistral";
  const auto windows = [](const DecoderConfig& d) {
    std::vector<int64_t> w;
    w.reserve(d.masks.size());
    for (const LayerMask& m : d.masks) w.push_back(m.window);
    return w;
  };
  EXPECT_EQ(windows(parsed(c)), (std::vector<int64_t>{4096, 4096, 4096}));
  c["sliding_window"] = nullptr;
  EXPECT_EQ(windows(parsed(c)), (std::vector<int64_t>{0, 0, 0}));
  c["sliding_window"] = 32;
  EXPECT_EQ(windows(parsed(c)), (std::vector<int64_t>{32, 32, 32}));
  c["sliding_window"] = 0;
  EXPECT_THAT(refusal(c), HasSubstr("sliding_window is 0"));
  c["sliding_window"] = 32;
  c["layer_types"] = {"full_attention", "sliding_attention", "sliding_attention"};
  EXPECT_THAT(refusal(c), HasSubstr("layer_types[0]"));

  c = toy();
  c["architectures"] = {"Qwen2ForCausalLM"};
  c["model_type"] = "qwen2";
  c["sliding_window"] = 8;
  c["max_window_layers"] = 2;
  c["use_sliding_window"] = false;
  EXPECT_EQ(windows(parsed(c)), (std::vector<int64_t>{0, 0, 0}));
  c["use_sliding_window"] = true;
  EXPECT_EQ(windows(parsed(c)), (std::vector<int64_t>{0, 0, 8}));
  c["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(windows(parsed(c)), (std::vector<int64_t>{8, 0, 8}));
  c["layer_types"] = {"sliding_attention", "chunked_attention", "sliding_attention"};
  EXPECT_THAT(refusal(c), HasSubstr("chunked_attention"));
  c["layer_types"] = {"full_attention"};
  EXPECT_THAT(refusal(c), HasSubstr("layer_types must be"));
  c["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  c["use_sliding_window"] = false;
  EXPECT_THAT(refusal(c), HasSubstr("no sliding window is set"));
}

TEST(Config, RopeLayouts) {
  json c = toy();
  const json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  c["rope_scaling"] = yarn;
  const RopeConfig rope = parsed(c).rope;
  EXPECT_EQ(rope.kind, RopeKind::kYarn);
  EXPECT_EQ(rope.original_max_position, 1024);
  EXPECT_EQ(rope.beta_fast, 32.0);
  json nested = toy();
  nested.erase("rope_theta");
  json params = yarn;
  params["rope_theta"] = 10000.0;
  nested["rope_parameters"] = {{"full_attention", params}, {"sliding_attention", params}};
  EXPECT_EQ(parsed(nested).rope, rope);
  nested["rope_parameters"]["sliding_attention"]["factor"] = 8;
  EXPECT_THAT(refusal(nested), HasSubstr("different rotary parameters"));
  c["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 1024}};
  EXPECT_EQ(parsed(c).rope.factor, 4.0);
  c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
  EXPECT_EQ(parsed(c).rope.factor, 2.0);
  c["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 3}};
  EXPECT_THAT(refusal(c), HasSubstr("both given and differ"));
}

TEST(Config, RopeRefusals) {
  const auto with = [](json rope) {
    json c = toy();
    c["rope_scaling"] = std::move(rope);
    return refusal(c);
  };
  EXPECT_THAT(with({{"rope_type", "longrope"}}), HasSubstr("\"longrope\" is not supported"));
  EXPECT_THAT(with({{"type", "dynamic"}, {"factor", 2}}), HasSubstr("\"dynamic\" is not supported"));
  EXPECT_THAT(with({{"type", "yarn"}, {"rope_type", "linear"}, {"factor", 2}}),
              HasSubstr("rope_scaling.type"));
  EXPECT_THAT(with({{"rope_type", "default"}, {"mrope_section", {1, 2}}}), HasSubstr("mrope_section"));
  EXPECT_THAT(with({{"rope_type", "linear"}}), HasSubstr("rope_scaling.factor is missing"));
  EXPECT_THAT(with({{"rope_type", "linear"}, {"factor", 0}}), HasSubstr("rope_scaling.factor is 0"));
  EXPECT_THAT(with({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 1}}),
              HasSubstr("must be less than high_freq_factor"));
  EXPECT_THAT(with({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(with("yarn"), HasSubstr("must be an object"));
  EXPECT_THAT(with({{"rope_type", "default"}, {"rope_theta", 5}}), HasSubstr("rope_theta is 10000"));
}

TEST(Config, RefusalsByName) {
  const auto with = [](const char* key, json value) {
    json c = toy();
    c[key] = std::move(value);
    return refusal(c);
  };
  EXPECT_THAT(with("model_type", "gemma2"), HasSubstr("model_type \"gemma2\""));
  EXPECT_THAT(with("model_type", "qwen2"), HasSubstr("do not agree"));
  EXPECT_THAT(with("architectures", {"LlamaForSequenceClassification"}),
              HasSubstr("LlamaForSequenceClassification"));
  EXPECT_THAT(with("hidden_act", "gelu"), HasSubstr("hidden_act \"gelu\""));
  EXPECT_THAT(with("quantization_config", {{"quant_method", "gptq"}}), HasSubstr("gptq"));
  EXPECT_THAT(with("partial_rotary_factor", 0.5), HasSubstr("partial_rotary_factor is 0.5"));
  EXPECT_THAT(with("rope_interleaved", true), HasSubstr("rope_interleaved is true"));
  EXPECT_THAT(with("num_local_experts", 8), HasSubstr("num_local_experts"));
  EXPECT_THAT(with("torch_dtype", "float8_e4m3fn"), HasSubstr("float8_e4m3fn"));
  EXPECT_THAT(with("sliding_window", 4096), HasSubstr("sliding_window"));
  json c = toy();
  c["num_local_experts"] = nullptr;
  c["partial_rotary_factor"] = 1.0;
  c["use_mrope"] = false;
  EXPECT_EQ(parsed(c), parsed(toy()));
  EXPECT_THAT(refusal(json::object()), HasSubstr("neither model_type nor architectures"));
}

// What changes the mathematics in models near ours.
TEST(Config, ValuesThatAreNotImplemented) {
  const auto with = [](const char* key, json value) {
    json c = toy();
    c[key] = std::move(value);
    return refusal(c);
  };
  for (const char* key :
       {"mup_enabled", "use_mup", "attn_output_gate", "use_qk_norm", "qk_norm", "use_logn_attn",
        "use_dynamic_ntk", "use_bidirectional_attention", "attn_temperature_tuning", "alibi", "use_mrope"}) {
    EXPECT_THAT(with(key, true), HasSubstr(std::string(key) + " is true")) << key;
  }
  for (const char* key : {"logit_scale", "logits_scaling", "residual_multiplier", "embedding_multiplier",
                          "attention_multiplier", "final_logit_softcapping", "attn_logit_softcapping",
                          "query_pre_attn_scalar", "clip_qkv", "scale_emb", "scale_depth", "dim_model_base",
                          "rotary_pct", "rotary_dim", "attention_chunk_size", "num_kv_shared_layers"}) {
    EXPECT_THAT(with(key, 12), HasSubstr(std::string(key) + " is 12")) << key;
  }
  EXPECT_THAT(with("no_rope_layers", {1, 0, 1}), HasSubstr("no_rope_layers"));
  EXPECT_THAT(with("quantization", {{"bits", 4}, {"group_size", 64}}),
              HasSubstr("quantization is an object"));
  EXPECT_THAT(with("compression_config", {{"format", "pack"}}), HasSubstr("compression_config"));
  EXPECT_THAT(with("position_embedding_type", "learned"), HasSubstr("position_embedding_type \"learned\""));
  EXPECT_THAT(with("hidden_activation", "gelu_pytorch_tanh"), HasSubstr("hidden_activation"));
  EXPECT_THAT(with("is_causal", false), HasSubstr("is_causal is false"));
  EXPECT_THAT(with("mlp_bias", "no"), HasSubstr("mlp_bias is \"no\""));
  // Where null is no way to say "not set".
  for (const char* key : {"rms_norm_eps", "rope_theta", "hidden_act", "vocab_size"}) {
    EXPECT_THAT(with(key, nullptr), HasSubstr(key)) << key;
  }
}

TEST(Config, HarmlessValues) {
  json c = toy();
  for (const char* key : {"head_dim", "num_key_value_heads", "layer_types", "sliding_window", "rope_scaling",
                          "quantization_config", "attention_chunk_size", "position_embedding_type",
                          "partial_rotary_factor", "final_logit_softcapping", "pad_token_id"}) {
    json with_null = c;
    with_null[key] = nullptr;
    if (std::string(key) == "num_key_value_heads") {
      EXPECT_EQ(parsed(with_null).kv_heads, 4);
    } else {
      EXPECT_EQ(parsed(with_null), parsed(c)) << key;
    }
  }
  c["pretraining_tp"] = 2;  // how a product was cut up in training
  c["attention_dropout"] = 0.1;
  c["initializer_range"] = 0.02;
  c["use_cache"] = true;
  c["mup_enabled"] = false;
  c["position_embedding_type"] = "rope";
  c["logit_scale"] = 1.0;
  c["is_causal"] = true;
  EXPECT_EQ(parsed(c), parsed(toy()));
}

// What only follows from a fault is not said.
TEST(Config, OnlyTheRootOfAFault) {
  const auto with = [](const char* key, json value) {
    json c = toy();
    c["layer_types"] = {"full_attention", "full_attention", "full_attention"};
    c[key] = std::move(value);
    return refusal(c);
  };
  EXPECT_EQ(with("vocab_size", 1.5), "config.json: vocab_size is 1.5, must be an integer from 1 to 16777216");
  EXPECT_EQ(with("num_attention_heads", 0),
            "config.json: num_attention_heads is 0, must be an integer from 1 to 16384");
  EXPECT_EQ(with("hidden_size", "wide"),
            "config.json: hidden_size is \"wide\", must be an integer from 1 to 1048576");
  EXPECT_EQ(with("num_hidden_layers", 0),
            "config.json: num_hidden_layers is 0, must be an integer from 1 to 4096");
  EXPECT_EQ(with("num_key_value_heads", 0),
            "config.json: num_key_value_heads is 0, must be an integer from 1 to 16384");
  EXPECT_EQ(with("max_position_embeddings", 0),
            "config.json: max_position_embeddings is 0, must be an integer from 1 to 1073741824");
}

TEST(Config, HostileNumbers) {
  const auto with = [](const char* key, json value) {
    json c = toy();
    c[key] = std::move(value);
    return refusal(c);
  };
  EXPECT_THAT(with("num_hidden_layers", 1'000'000'000), HasSubstr("num_hidden_layers is 1000000000"));
  EXPECT_THAT(with("num_hidden_layers", 3.0), HasSubstr("num_hidden_layers is 3.0"));
  EXPECT_THAT(with("num_hidden_layers", true), HasSubstr("num_hidden_layers is true"));
  EXPECT_THAT(with("num_hidden_layers", nullptr), HasSubstr("num_hidden_layers is missing"));
  EXPECT_THAT(with("hidden_size", -64), HasSubstr("hidden_size is -64"));
  EXPECT_THAT(with("hidden_size", 18446744073709551615u), HasSubstr("hidden_size"));
  EXPECT_THAT(with("hidden_size", 66), HasSubstr("head_dim is not given"));
  EXPECT_THAT(with("head_dim", 0), HasSubstr("head_dim is 0"));
  EXPECT_THAT(with("head_dim", 15), HasSubstr("odd"));
  EXPECT_THAT(with("num_attention_heads", 0), HasSubstr("num_attention_heads is 0"));
  EXPECT_THAT(with("num_key_value_heads", 3), HasSubstr("must be a multiple of num_key_value_heads (3)"));
  EXPECT_THAT(with("num_key_value_heads", 0), HasSubstr("num_key_value_heads is 0"));
  EXPECT_THAT(with("rms_norm_eps", 0), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(with("rms_norm_eps", "1e-6"), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(with("rope_theta", 0), HasSubstr("rope_theta"));
  EXPECT_THAT(with("eos_token_id", {1, 512}), HasSubstr("eos_token_id"));
  EXPECT_THAT(with("eos_token_id", json::array({1, json::array()})), HasSubstr("eos_token_id"));
  EXPECT_THAT(with("bos_token_id", -1), HasSubstr("bos_token_id"));
  EXPECT_THAT(with("tie_word_embeddings", "yes"), HasSubstr("tie_word_embeddings"));
  json c = toy();
  c["eos_token_id"] = {2, 3};
  EXPECT_EQ(parsed(c).eos_ids, (std::vector<int32_t>{2, 3}));
}

TEST(Config, AllFaultsAtOnce) {
  json c = toy();
  c["num_hidden_layers"] = 0;
  c["hidden_act"] = "relu";
  c["vocab_size"] = "many";
  c["rope_scaling"] = {{"rope_type", "su"}};
  c["quantization_config"] = {{"quant_method", "fp8"}};
  EXPECT_THAT(refusal(c), AllOf(HasSubstr("num_hidden_layers"), HasSubstr("relu"), HasSubstr("vocab_size"),
                                HasSubstr("\"su\""), HasSubstr("fp8")));
}

TEST(Config, NotAConfig) {
  for (const char* text : {"", "[]", "null", "3", "{", "{\"a\":1,\"a\":2}", "\xEF\xBB\xBF"}) {
    EXPECT_FALSE(parse_config(text).ok()) << text;
  }
  EXPECT_FALSE(parse_config(std::string(100'000, '[')).ok());
}

DecoderConfig sized(int64_t layers, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  json c = toy();
  c["num_hidden_layers"] = layers;
  c["num_attention_heads"] = heads;
  c["num_key_value_heads"] = kv_heads;
  c["head_dim"] = head_dim;
  return parsed(c);
}

// C28's figures.
TEST(Config, KvBytesPerToken) {
  EXPECT_EQ(kv_bytes_per_token(sized(32, 32, 8, 128), DType::kBF16), 131072);  // Llama-3.1-8B
  EXPECT_EQ(kv_bytes_per_token(sized(36, 32, 8, 128), DType::kBF16), 147456);  // Qwen3-8B
  EXPECT_EQ(kv_bytes_per_token(sized(16, 32, 8, 64), DType::kBF16), 32768);    // Llama-3.2-1B
}

// C14 (b): the head size is the config's.
TEST(Config, HeadSizeApartFromWidth) {
  json c = toy();
  c["architectures"] = {"Qwen3ForCausalLM"};
  c["model_type"] = "qwen3";
  c["hidden_size"] = 20;
  c["head_dim"] = 8;
  const DecoderConfig config = parsed(c);
  EXPECT_EQ(kv_bytes_per_token(config, DType::kF32) / config.layers, 2 * 2 * 8 * 4);
  std::map<std::string, Shape> shapes;
  for (const auto& t : required_tensors(config)) shapes[t.name] = t.shape;
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_proj.weight"), (Shape{32, 20}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.k_proj.weight"), (Shape{16, 20}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.v_proj.weight"), (Shape{16, 20}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.o_proj.weight"), (Shape{20, 32}));
  EXPECT_EQ(shapes.at("model.layers.2.self_attn.q_norm.weight"), (Shape{8}));
}

TEST(Config, WeightsBytes) {
  // Llama-3.2-1B: 1,235,814,400 parameters with the head tied.
  json c = toy();
  c["num_hidden_layers"] = 16;
  c["hidden_size"] = 2048;
  c["num_attention_heads"] = 32;
  c["num_key_value_heads"] = 8;
  c["intermediate_size"] = 8192;
  c["vocab_size"] = 128256;
  c["tie_word_embeddings"] = true;
  EXPECT_EQ(parameter_count(parsed(c)), 1'235'814'400);
  EXPECT_EQ(weights_bytes(parsed(c), DType::kBF16), 2'471'628'800);
}

}  // namespace
}  // namespace lariat
