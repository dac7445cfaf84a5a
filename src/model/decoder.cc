#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/elementwise.h"

namespace lariat {
namespace {

constexpr int64_t kAlignFloats = 16;  // every part starts on a cache line

int64_t aligned(int64_t floats) {
  return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

int64_t vocab_part_max(const DecoderConfig& c, int32_t tp) {
  return (c.vocab + tp - 1) / tp;
}

int64_t qkv_width(const DecoderConfig& c, const DecoderShard& s) {
  return (s.heads.count + 2 * s.kv_heads.count) * c.head_dim;
}

// The parts of a workspace in order: one list serves size and layout.
template <typename Fn>
void for_each_part(const DecoderConfig& c, const DecoderShard& s, DecoderWorkspace::Sizes sizes,
                   const Fn& fn) {
  const int64_t t = sizes.tokens_max;
  const int64_t rows = sizes.logit_rows_max;
  fn(&DecoderWorkspace::x, t * c.hidden);
  fn(&DecoderWorkspace::normed, t * c.hidden);
  fn(&DecoderWorkspace::qkv, t * qkv_width(c, s));
  fn(&DecoderWorkspace::attended, t * s.heads.count * c.head_dim);
  fn(&DecoderWorkspace::gate_up, t * 2 * s.ffn.count);
  fn(&DecoderWorkspace::cos, t * (c.head_dim / 2));
  fn(&DecoderWorkspace::sin, t * (c.head_dim / 2));
  fn(&DecoderWorkspace::logits, rows * c.vocab);
  fn(&DecoderWorkspace::logit_in, rows * c.hidden);
  fn(&DecoderWorkspace::logit_parts, s.tp > 1 ? (1 + s.tp) * rows * vocab_part_max(c, s.tp) : 0);
}

// RMS norm over D of each of `heads` heads of a token, rows at `stride` floats.
void head_norm(Stream& stream, float* x, int64_t stride, int64_t t, const DecoderConfig& c, int64_t heads,
               const float* weight) {
  for (int64_t h = 0; h < heads; ++h) {
    float* head = x + h * c.head_dim;
    rms_norm(stream, {.x = head,
                      .x_stride = stride,
                      .weight = weight,
                      .eps = static_cast<float>(c.rms_eps),
                      .out = head,
                      .out_stride = stride,
                      .rows = t,
                      .d = c.head_dim});
  }
}

RmsNormArgs norm_args(const DecoderConfig& c, const float* x, const float* weight, float* out, int64_t rows) {
  return {.x = x,
          .x_stride = c.hidden,
          .weight = weight,
          .eps = static_cast<float>(c.rms_eps),
          .out = out,
          .out_stride = c.hidden,
          .rows = rows,
          .d = c.hidden};
}

}  // namespace

int64_t DecoderWorkspace::bytes(const DecoderConfig& config, const DecoderShard& shard, Sizes sizes) {
  int64_t floats = 0;
  for_each_part(config, shard, sizes, [&](auto, int64_t n) { floats += aligned(n); });
  return floats * static_cast<int64_t>(sizeof(float));
}

Result<DecoderWorkspace> DecoderWorkspace::create(const DecoderConfig& config, const DecoderShard& shard,
                                                  Sizes sizes) {
  DecoderWorkspace ws;
  ws.sizes = sizes;
  LARIAT_ASSIGN(ws.buffer_, Buffer::allocate(static_cast<size_t>(bytes(config, shard, sizes))));
  float* next = ws.buffer_.as<float>().data();
  for_each_part(config, shard, sizes, [&](float* DecoderWorkspace::* part, int64_t n) {
    ws.*part = next;
    next += aligned(n);
  });
  return ws;
}

Decoder::Decoder(DecoderConfig config, std::shared_ptr<const DecoderWeights> weights, TensorParallel tp)
    : config_(std::move(config)),
      rope_(make_rope_table(config_.rope, config_.head_dim)),
      weights_(std::move(weights)),
      tp_(tp) {
  LARIAT_CHECK((tp_.group ? tp_.group->size() : 1) == shard().tp, "a shard of {} without its group",
               shard().tp);
}

Status Decoder::forward(Stream& stream, DecoderWorkspace& ws, std::span<const int32_t> tokens,
                        std::span<const int32_t> positions, AttentionBackend& attention,
                        const KeepGoing& keep_going) const {
  const auto t = static_cast<int64_t>(tokens.size());
  LARIAT_CHECK(t <= ws.sizes.tokens_max && positions.size() == tokens.size(),
               "{} tokens, {} positions, room for {}", t, positions.size(), ws.sizes.tokens_max);
  LARIAT_RETURN_IF_ERROR(embed(stream, ws, tokens));
  rope_angles(stream, positions.data(), t, rope_.inv_freq.data(), static_cast<int>(config_.head_dim / 2),
              rope_.attention_factor, ws.cos, ws.sin);
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    if (!keep_going()) return make_error(Errc::kCancelled, "the step was cancelled");
    LARIAT_RETURN_IF_ERROR(attention_block(stream, ws, layer, t, attention));
    LARIAT_RETURN_IF_ERROR(mlp_block(stream, ws, layer, t));
  }
  return Ok{};
}

// With the vocabulary split, each shard looks up its own ids and contributes zeros for the rest: the sum is
// exact.
Status Decoder::embed(Stream& stream, DecoderWorkspace& ws, std::span<const int32_t> tokens) const {
  const auto t = static_cast<int64_t>(tokens.size());
  if (shard().tp == 1) {
    embedding(stream, weights_->embedding, tokens.data(), t, ws.x);
    return Ok{};
  }
  const Slice own = shard().vocab;
  const auto is_own = [&](int32_t id) { return id >= own.begin && id < own.begin + own.count; };
  std::vector<int32_t> local(tokens.begin(), tokens.end());
  for (int32_t& id : local) id = is_own(id) ? id - static_cast<int32_t>(own.begin) : 0;
  if (own.count > 0) embedding(stream, weights_->embedding, local.data(), t, ws.x);
  for (int64_t i = 0; i < t; ++i) {
    if (!is_own(tokens[static_cast<size_t>(i)])) std::fill_n(ws.x + i * config_.hidden, config_.hidden, 0.0f);
  }
  return all_reduce(ws.x, t * config_.hidden);
}

Status Decoder::attention_block(Stream& stream, DecoderWorkspace& ws, int32_t layer, int64_t t,
                                AttentionBackend& attention) const {
  const DecoderConfig& c = config_;
  const LayerWeights& w = weights_->layers[static_cast<size_t>(layer)];
  const int64_t heads = shard().heads.count;
  const int64_t kv_heads = shard().kv_heads.count;
  const int64_t width = qkv_width(c, shard());
  const auto dim = static_cast<int>(c.head_dim);

  rms_norm(stream, norm_args(c, ws.x, w.attention_norm, ws.normed, t));
  matmul(stream, {.x = ws.normed,
                  .x_stride = c.hidden,
                  .t = t,
                  .w = w.qkv,
                  .bias = w.qkv_bias,
                  .out = ws.qkv,
                  .out_stride = width});
  float* q = ws.qkv;
  float* k = q + heads * c.head_dim;
  float* v = k + kv_heads * c.head_dim;
  // Qwen3 norms each head of q and k before the rotation.
  if (w.q_norm) {
    head_norm(stream, q, width, t, c, heads, w.q_norm);
    head_norm(stream, k, width, t, c, kv_heads, w.k_norm);
  }
  rope(stream, {.x = q,
                .x_stride = width,
                .rows = t,
                .heads = static_cast<int>(heads),
                .dim = dim,
                .cos = ws.cos,
                .sin = ws.sin});
  rope(stream, {.x = k,
                .x_stride = width,
                .rows = t,
                .heads = static_cast<int>(kv_heads),
                .dim = dim,
                .cos = ws.cos,
                .sin = ws.sin});
  LARIAT_RETURN_IF_ERROR(attention.layer(
      LayerId(layer), {.q = q, .q_stride = width, .k = k, .k_stride = width, .v = v, .v_stride = width},
      ws.attended));
  return add_projection(
      stream, ws, {.x = ws.attended, .x_stride = heads * c.head_dim, .t = t, .w = w.o, .bias = w.o_bias});
}

Status Decoder::mlp_block(Stream& stream, DecoderWorkspace& ws, int32_t layer, int64_t t) const {
  const DecoderConfig& c = config_;
  const LayerWeights& w = weights_->layers[static_cast<size_t>(layer)];
  const int64_t ffn = shard().ffn.count;
  rms_norm(stream, norm_args(c, ws.x, w.mlp_norm, ws.normed, t));
  matmul(stream, {.x = ws.normed,
                  .x_stride = c.hidden,
                  .t = t,
                  .w = w.gate_up,
                  .bias = w.gate_up_bias,
                  .out = ws.gate_up,
                  .out_stride = 2 * ffn});
  silu_mul(stream, {.gate = ws.gate_up,
                    .up = ws.gate_up + ffn,
                    .in_stride = 2 * ffn,
                    .out = ws.gate_up,
                    .out_stride = 2 * ffn,
                    .rows = t,
                    .d = ffn});
  return add_projection(stream, ws,
                        {.x = ws.gate_up, .x_stride = 2 * ffn, .t = t, .w = w.down, .bias = w.down_bias});
}

// x += product (+ bias). A shard's product is one summand of the whole: the sum over tp comes first, in the
// buffer of the norm, which is free by then.
Status Decoder::add_projection(Stream& stream, DecoderWorkspace& ws, MatmulArgs product) const {
  product.out_stride = config_.hidden;
  if (shard().tp == 1) {
    product.out = ws.x;
    product.accumulate = true;
    matmul(stream, product);
    return Ok{};
  }
  product.out = ws.normed;
  if (shard().t != 0) product.bias = nullptr;
  matmul(stream, product);
  const int64_t n = product.t * config_.hidden;
  LARIAT_RETURN_IF_ERROR(all_reduce(ws.normed, n));
  add_inplace(stream, ws.x, ws.normed, n);
  return Ok{};
}

Status Decoder::all_reduce(float* data, int64_t n) const {
  return tp_.group->all_reduce_sum(data, n, Device{})->wait(CommClock::now() + tp_.timeout);
}

Status Decoder::logits(Stream& stream, DecoderWorkspace& ws, std::span<const int64_t> rows) const {
  const auto n = static_cast<int64_t>(rows.size());
  LARIAT_CHECK(n <= ws.sizes.logit_rows_max, "{} logit rows, room for {}", n, ws.sizes.logit_rows_max);
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(ws.logit_in + i * config_.hidden, ws.x + rows[static_cast<size_t>(i)] * config_.hidden,
                static_cast<size_t>(config_.hidden) * sizeof(float));
  }
  rms_norm(stream, norm_args(config_, ws.logit_in, weights_->final_norm, ws.logit_in, n));
  const bool split = shard().tp > 1;
  matmul(stream, {.x = ws.logit_in,
                  .x_stride = config_.hidden,
                  .t = n,
                  .w = weights_->head,
                  .out = split ? ws.logit_parts : ws.logits,
                  .out_stride = shard().vocab.count});
  return split ? gather_logits(ws, n) : Status(Ok{});
}

// Own part [rows, vocab slice] from every shard, padded to the largest slice, laid side by side in tp order.
Status Decoder::gather_logits(DecoderWorkspace& ws, int64_t rows) const {
  const int32_t tp = shard().tp;
  const int64_t part = rows * vocab_part_max(config_, tp);
  float* all = ws.logit_parts + ws.sizes.logit_rows_max * vocab_part_max(config_, tp);
  const auto bytes = static_cast<size_t>(part) * sizeof(float);
  LARIAT_RETURN_IF_ERROR(
      tp_.group->all_gather({ws.logit_parts, bytes, {}}, {all, bytes * static_cast<size_t>(tp), {}})
          ->wait(CommClock::now() + tp_.timeout));
  for (int32_t t = 0; t < tp; ++t) {
    const Slice slice = shard_of(config_, tp, t).vocab;
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(all + t * part + r * slice.count, slice.count, ws.logits + r * config_.vocab + slice.begin);
    }
  }
  return Ok{};
}

}  // namespace lariat
