// The decoder, written once over ops and attention: Llama, Qwen2, Qwen3 and Mistral differ by flags of their
// config. Source: docs/sources.md#decoder.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "attention/attention.h"
#include "base/result.h"
#include "comm/group.h"
#include "model/config.h"
#include "model/decoder_weights.h"
#include "model/rope_table.h"
#include "tensor/stream.h"

namespace lariat {

// Called between layers; false stops the pass, which returns kCancelled. Also the stall watchdog's kick.
using KeepGoing = std::function<bool()>;

// The ranks that split this decoder's heads, MLP columns and vocabulary, and how long a rank waits for them.
struct TensorParallel {
  Group* group = nullptr;  // null, or of the shard's tp members; member t is shard t
  std::chrono::milliseconds timeout{10'000};
};

// Activations of one pass of one shard, allocated once: independent of context length.
class DecoderWorkspace {
 public:
  struct Sizes {
    int64_t tokens_max = 0;      // of one pass
    int64_t logit_rows_max = 0;  // positions whose logits are held at once
  };
  static Result<DecoderWorkspace> create(const DecoderConfig& config, const DecoderShard& shard, Sizes sizes);
  // Bytes create() takes (for capacity planning).
  static int64_t bytes(const DecoderConfig& config, const DecoderShard& shard, Sizes sizes);

  Sizes sizes;
  float* x = nullptr;            // [tokens_max, hidden] residual stream
  float* normed = nullptr;       // [tokens_max, hidden]
  float* qkv = nullptr;          // [tokens_max, (H + 2G) * D] of the shard
  float* attended = nullptr;     // [tokens_max, H * D] of the shard
  float* gate_up = nullptr;      // [tokens_max, 2 * ffn] of the shard
  float* cos = nullptr;          // [tokens_max, D / 2]
  float* sin = nullptr;          // [tokens_max, D / 2]
  float* logits = nullptr;       // [logit_rows_max, vocab]
  float* logit_in = nullptr;     // [logit_rows_max, hidden]
  float* logit_parts = nullptr;  // tp > 1: [1 + tp, logit_rows_max * ceil(vocab / tp)], own part, then all

 private:
  Buffer buffer_;
};

class Decoder {
 public:
  // Local ranks of one shard may hold the same weights.
  Decoder(DecoderConfig config, std::shared_ptr<const DecoderWeights> weights, TensorParallel tp = {});

  const DecoderConfig& config() const { return config_; }
  const DecoderShard& shard() const { return weights_->shard; }

  // One pass over `tokens` (T <= tokens_max) at `positions` [T]: embeds, runs every layer, leaves the last
  // layer's output in ws.x [T, hidden]. K/V and the rows' shapes are the backend's. Errors: the backend's, a
  // tp peer's, or kCancelled.
  Status forward(Stream& stream, DecoderWorkspace& ws, std::span<const int32_t> tokens,
                 std::span<const int32_t> positions, AttentionBackend& attention,
                 const KeepGoing& keep_going) const;

  // Logits of the pass's tokens `rows` (indexes into T; at most logit_rows_max) into ws.logits [rows, vocab]:
  // the whole vocabulary, gathered in tp order. Errors: a tp peer's.
  Status logits(Stream& stream, DecoderWorkspace& ws, std::span<const int64_t> rows) const;

 private:
  Status embed(Stream& stream, DecoderWorkspace& ws, std::span<const int32_t> tokens) const;
  Status attention_block(Stream& stream, DecoderWorkspace& ws, int32_t layer, int64_t t,
                         AttentionBackend& attention) const;
  Status mlp_block(Stream& stream, DecoderWorkspace& ws, int32_t layer, int64_t t) const;
  Status add_projection(Stream& stream, DecoderWorkspace& ws, MatmulArgs product) const;
  Status gather_logits(DecoderWorkspace& ws, int64_t rows) const;
  Status all_reduce(float* data, int64_t n) const;

  DecoderConfig config_;
  RopeTable rope_;
  std::shared_ptr<const DecoderWeights> weights_;
  TensorParallel tp_;
};

}  // namespace lariat
