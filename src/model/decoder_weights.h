// One rank's slice of a decoder's weights as kernels want them: products packed once, norms and biases
// widened to f32.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/shard.h"
#include "ops/matmul.h"
#include "tensor/stream.h"
#include "weights/packed_store.h"
#include "weights/tensor_source.h"

namespace lariat {

struct LayerWeights {
  const float* attention_norm = nullptr;  // [hidden]
  PackedMatrix qkv;                       // [(H + 2G) * D, hidden]: the shard's q, k, v one after another
  const float* qkv_bias = nullptr;        // same rows, or null
  const float* q_norm = nullptr;          // [D] or null
  const float* k_norm = nullptr;
  PackedMatrix o;                   // [hidden, H * D]: the shard's columns
  const float* o_bias = nullptr;    // whole; added once, by the first shard
  const float* mlp_norm = nullptr;  // [hidden]
  PackedMatrix gate_up;             // [2 * ffn, hidden]: the shard's gate, then up
  const float* gate_up_bias = nullptr;
  PackedMatrix down;                 // [hidden, ffn]: the shard's columns
  const float* down_bias = nullptr;  // whole; added once, by the first shard
};

using WeightsProgress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

struct DecoderWeights {
  struct Loader {
    Stream& stream;
    WeightsProgress progress;  // may be empty
  };

  DecoderShard shard;
  PackedMatrix embedding;  // [shard.vocab, hidden]
  PackedMatrix head;       // [shard.vocab, hidden]; the embedding's memory when tied
  const float* final_norm = nullptr;
  std::vector<LayerWeights> layers;

  // Packs what `shard` of `config` needs out of `source`, whose names, shapes and types have been checked
  // (open_weights). dtype: the stored type of products; absent means the file's own (f32 where one product's
  // tensors disagree). Memory: bytes(), plus alignment; each of the source's tensors is read once and
  // released.
  static Result<std::shared_ptr<const DecoderWeights>> load(const DecoderConfig& config,
                                                            const DecoderShard& shard,
                                                            const TensorSource& source,
                                                            std::optional<DType> dtype, const Loader& loader);
  // load() in two steps, for ranks that share one copy (weights/shared_weights.h). pack() reserves and fills
  // what the shard needs in `store`, which is not sealed yet; from_store() finds it in a sealed store,
  // wherever that was packed, without reading the source's data. kCorruptData if the store holds other
  // weights than asked for.
  static Status pack(const DecoderConfig& config, const DecoderShard& shard, const TensorSource& source,
                     std::optional<DType> dtype, const Loader& loader, PackedStore& store);
  static Result<std::shared_ptr<const DecoderWeights>> from_store(const DecoderConfig& config,
                                                                  const DecoderShard& shard,
                                                                  const TensorSource& source,
                                                                  std::optional<DType> dtype,
                                                                  PackedStore store);
  // What packed bytes depend on besides the code: ranks share a store only under one key.
  static std::string key(const std::array<uint64_t, 2>& fingerprint, const DecoderShard& shard,
                         std::optional<DType> dtype);
  // Bytes that load() takes.
  static int64_t bytes(const DecoderConfig& config, const DecoderShard& shard, const TensorSource& source,
                       std::optional<DType> dtype);

  PackedStore store;  // memfd: local ranks can map the same pages
};

}  // namespace lariat
