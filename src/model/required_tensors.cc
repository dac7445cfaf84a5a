#include "model/required_tensors.h"

#include <string>

namespace lariat {
namespace {

void add_linear(std::vector<TensorRequirement>& out, const std::string& name, Shape shape, bool bias) {
  out.push_back({.name = name + ".weight", .shape = shape});
  if (bias) out.push_back({.name = name + ".bias", .shape = {shape[0]}});
}

void add_layer(std::vector<TensorRequirement>& out, const DecoderConfig& c, int64_t layer) {
  const std::string p = "model.layers." + std::to_string(layer) + ".";
  const int64_t q = c.heads * c.head_dim;
  const int64_t kv = c.kv_heads * c.head_dim;
  out.push_back({.name = p + "input_layernorm.weight", .shape = {c.hidden}});
  add_linear(out, p + "self_attn.q_proj", {q, c.hidden}, c.qkv_bias);
  add_linear(out, p + "self_attn.k_proj", {kv, c.hidden}, c.qkv_bias);
  add_linear(out, p + "self_attn.v_proj", {kv, c.hidden}, c.qkv_bias);
  add_linear(out, p + "self_attn.o_proj", {c.hidden, q}, c.o_bias);
  if (c.qk_norm) {
    out.push_back({.name = p + "self_attn.q_norm.weight", .shape = {c.head_dim}});
    out.push_back({.name = p + "self_attn.k_norm.weight", .shape = {c.head_dim}});
  }
  out.push_back({.name = p + "post_attention_layernorm.weight", .shape = {c.hidden}});
  add_linear(out, p + "mlp.gate_proj", {c.ffn, c.hidden}, c.mlp_bias);
  add_linear(out, p + "mlp.up_proj", {c.ffn, c.hidden}, c.mlp_bias);
  add_linear(out, p + "mlp.down_proj", {c.hidden, c.ffn}, c.mlp_bias);
}

}  // namespace

std::vector<TensorRequirement> required_tensors(const DecoderConfig& c) {
  std::vector<TensorRequirement> out;
  out.push_back({.name = "model.embed_tokens.weight", .shape = {c.vocab, c.hidden}});
  for (int64_t i = 0; i < c.layers; ++i) add_layer(out, c, i);
  out.push_back({.name = "model.norm.weight", .shape = {c.hidden}});
  if (!c.tie_embeddings) out.push_back({.name = "lm_head.weight", .shape = {c.vocab, c.hidden}});
  return out;
}

int64_t parameter_count(const DecoderConfig& config) {
  int64_t n = 0;
  for (const TensorRequirement& r : required_tensors(config)) n += r.shape.elements();
  return n;
}

int64_t weights_bytes(const DecoderConfig& config, DType dtype) {
  return parameter_count(config) * static_cast<int64_t>(dtype_size(dtype));
}

}  // namespace lariat
