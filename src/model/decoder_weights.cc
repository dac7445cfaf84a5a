#include "model/decoder_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

namespace lariat {
namespace {

// A tensor's rows and columns that this shard holds; a vector's `cols` is empty.
struct Part {
  std::string name;
  Slice rows;
  Slice cols;
};

// Walks a decoder's weights in one fixed order, counting bytes, packing into a store or finding what was
// packed: the size announced, the size taken and the size expected cannot differ.
class Packer {
 public:
  // Counts.
  Packer(const TensorSource& source, std::optional<DType> dtype) : source_(source), dtype_(dtype) {}

  // Packs into `store`.
  void pack_into(PackedStore& store, const DecoderWeights::Loader& loader, int64_t total) {
    target_ = &store;
    stream_ = &loader.stream;
    progress_ = loader.progress;
    total_ = total;
  }

  // Finds everything in a sealed `store`.
  void find_in(const PackedStore& store) { packed_ = &store; }

  int64_t used() const { return used_; }
  const Status& status() const { return status_; }

  // One product out of parts of [rows, k] tensors, stacked; filed under the first one's name.
  PackedMatrix product(std::initializer_list<Part> parts) {
    PackedMatrix out;
    out.dtype = stored_type(parts);
    for (const Part& part : parts) {
      out.k = part.cols.count;
      out.n += part.rows.count;
    }
    std::byte* dst = nullptr;
    out.data = memory(parts.begin()->name, out.bytes(), &dst);
    if (!dst) return out;
    int64_t row = 0;
    for (const Part& part : parts) {
      pack_rows(*stream_, {.src = get(part.name),
                           .row0 = part.rows.begin,
                           .rows = part.rows.count,
                           .col0 = part.cols.begin,
                           .cols = part.cols.count,
                           .dst = dst,
                           .dtype = out.dtype,
                           .dst_row0 = row});
      row += part.rows.count;
      source_.release(part.name);
    }
    if (progress_) progress_(used_, total_);
    return out;
  }

  // Parts of vectors one after another, as f32.
  const float* vector(std::initializer_list<Part> parts) {
    int64_t n = 0;
    for (const Part& part : parts) n += part.rows.count;
    std::byte* dst = nullptr;
    const std::byte* data = memory(parts.begin()->name, n * static_cast<int64_t>(sizeof(float)), &dst);
    if (dst) {
      auto* out = reinterpret_cast<float*>(dst);
      for (const Part& part : parts) {
        widen(get(part.name), part.rows, out);
        out += part.rows.count;
        source_.release(part.name);
      }
    }
    return reinterpret_cast<const float*>(data);
  }

 private:
  ConstView get(const std::string& name) const {
    const auto view = source_.find(name);
    LARIAT_CHECK(view.has_value(), "{} passed the check of names and is missing", name);
    return *view;
  }

  // Tensors of one product share one type; a file that mixes them is widened.
  DType stored_type(std::initializer_list<Part> parts) const {
    if (dtype_) return *dtype_;
    std::optional<DType> type;
    for (const Part& part : parts) {
      const auto meta = source_.describe(part.name);
      LARIAT_CHECK(meta.has_value(), "{} passed the check of names and is missing", part.name);
      if (type && *type != meta->dtype) return DType::kF32;
      type = meta->dtype;
    }
    return *type;
  }

  // Where `name` lives; `*writable` is set if it is to be filled. Null while counting, and after a failure.
  const std::byte* memory(const std::string& name, int64_t bytes, std::byte** writable) {
    used_ += bytes;
    if (packed_) return find(name, static_cast<size_t>(bytes));
    if (!target_ || !status_.ok()) return nullptr;
    auto reserved = target_->reserve(name, static_cast<size_t>(bytes));
    if (!reserved.ok()) {
      status_ = std::move(reserved).error();
      return nullptr;
    }
    *writable = *reserved;
    return *reserved;
  }

  const std::byte* find(const std::string& name, size_t bytes) {
    const std::span<const std::byte> found = packed_->find(name);
    if (found.size() == bytes) return found.data();
    if (status_.ok()) {
      status_ = make_error(Errc::kCorruptData, fmt::format("packed weights have {} bytes of {}, not {}",
                                                           found.size(), name, bytes));
    }
    return nullptr;
  }

  static void widen(const ConstView& view, Slice slice, float* out) {
    const int64_t end = slice.begin + slice.count;
    switch (view.dtype) {
      case DType::kF32:
        std::copy_n(static_cast<const float*>(view.data) + slice.begin, slice.count, out);
        return;
      case DType::kBF16:
        for (int64_t i = slice.begin; i < end; ++i)
          *out++ = bf16_to_f32(static_cast<const Bf16*>(view.data)[i]);
        return;
      case DType::kF16:
        for (int64_t i = slice.begin; i < end; ++i)
          *out++ = f16_to_f32(static_cast<const F16*>(view.data)[i]);
        return;
      default:
        LARIAT_CHECK(false, "{} passed the check of types", dtype_name(view.dtype));
    }
  }

  const TensorSource& source_;
  const std::optional<DType> dtype_;
  PackedStore* target_ = nullptr;
  const PackedStore* packed_ = nullptr;
  Stream* stream_ = nullptr;
  WeightsProgress progress_;
  int64_t total_ = 0;
  int64_t used_ = 0;
  Status status_ = Ok{};
};

// Rows of a projection that hold `heads`.
Slice rows_of(Slice heads, int64_t head_dim) {
  return {heads.begin * head_dim, heads.count * head_dim};
}

LayerWeights pack_layer(Packer& packer, const DecoderConfig& c, const DecoderShard& s, int64_t layer) {
  const std::string at = fmt::format("model.layers.{}.", layer);
  const std::string attn = at + "self_attn.";
  const std::string mlp = at + "mlp.";
  const Slice whole{0, c.hidden};
  const Slice q = rows_of(s.heads, c.head_dim);
  const Slice kv = rows_of(s.kv_heads, c.head_dim);
  LayerWeights w;
  w.attention_norm = packer.vector({{at + "input_layernorm.weight", whole, {}}});
  w.qkv = packer.product({{attn + "q_proj.weight", q, whole},
                          {attn + "k_proj.weight", kv, whole},
                          {attn + "v_proj.weight", kv, whole}});
  if (c.qkv_bias) {
    w.qkv_bias = packer.vector(
        {{attn + "q_proj.bias", q, {}}, {attn + "k_proj.bias", kv, {}}, {attn + "v_proj.bias", kv, {}}});
  }
  if (c.qk_norm) {
    w.q_norm = packer.vector({{attn + "q_norm.weight", {0, c.head_dim}, {}}});
    w.k_norm = packer.vector({{attn + "k_norm.weight", {0, c.head_dim}, {}}});
  }
  w.o = packer.product({{attn + "o_proj.weight", whole, q}});
  if (c.o_bias) w.o_bias = packer.vector({{attn + "o_proj.bias", whole, {}}});
  w.mlp_norm = packer.vector({{at + "post_attention_layernorm.weight", whole, {}}});
  w.gate_up =
      packer.product({{mlp + "gate_proj.weight", s.ffn, whole}, {mlp + "up_proj.weight", s.ffn, whole}});
  if (c.mlp_bias) {
    w.gate_up_bias = packer.vector({{mlp + "gate_proj.bias", s.ffn, {}}, {mlp + "up_proj.bias", s.ffn, {}}});
  }
  w.down = packer.product({{mlp + "down_proj.weight", whole, s.ffn}});
  if (c.mlp_bias) w.down_bias = packer.vector({{mlp + "down_proj.bias", whole, {}}});
  return w;
}

void pack_all(Packer& packer, const DecoderConfig& c, const DecoderShard& s, DecoderWeights& w) {
  const Slice whole{0, c.hidden};
  w.shard = s;
  w.embedding = packer.product({{"model.embed_tokens.weight", s.vocab, whole}});
  for (int64_t layer = 0; layer < c.layers; ++layer) w.layers.push_back(pack_layer(packer, c, s, layer));
  w.final_norm = packer.vector({{"model.norm.weight", whole, {}}});
  w.head = c.tie_embeddings ? w.embedding : packer.product({{"lm_head.weight", s.vocab, whole}});
}

}  // namespace

int64_t DecoderWeights::bytes(const DecoderConfig& config, const DecoderShard& shard,
                              const TensorSource& source, std::optional<DType> dtype) {
  Packer packer(source, dtype);
  DecoderWeights nowhere;
  pack_all(packer, config, shard, nowhere);
  return packer.used();
}

Status DecoderWeights::pack(const DecoderConfig& config, const DecoderShard& shard,
                            const TensorSource& source, std::optional<DType> dtype, const Loader& loader,
                            PackedStore& store) {
  Packer packer(source, dtype);
  packer.pack_into(store, loader, bytes(config, shard, source, dtype));
  DecoderWeights elsewhere;
  pack_all(packer, config, shard, elsewhere);
  LARIAT_RETURN_IF_ERROR(packer.status());
  return source.check_unchanged();
}

Result<std::shared_ptr<const DecoderWeights>> DecoderWeights::from_store(const DecoderConfig& config,
                                                                         const DecoderShard& shard,
                                                                         const TensorSource& source,
                                                                         std::optional<DType> dtype,
                                                                         PackedStore store) {
  LARIAT_CHECK(store.sealed(), "weights from a store that is still being packed");
  auto weights = std::make_shared<DecoderWeights>();
  weights->store = std::move(store);
  Packer packer(source, dtype);
  packer.find_in(weights->store);
  pack_all(packer, config, shard, *weights);
  LARIAT_RETURN_IF_ERROR(packer.status());
  return std::shared_ptr<const DecoderWeights>(std::move(weights));
}

Result<std::shared_ptr<const DecoderWeights>> DecoderWeights::load(const DecoderConfig& config,
                                                                   const DecoderShard& shard,
                                                                   const TensorSource& source,
                                                                   std::optional<DType> dtype,
                                                                   const Loader& loader) {
  const int64_t total = bytes(config, shard, source, dtype);
  PackedStore store({.shared = true, .capacity_hint = static_cast<size_t>(total + (1 << 20))});
  LARIAT_RETURN_IF_ERROR(pack(config, shard, source, dtype, loader, store));
  store.seal();
  return from_store(config, shard, source, dtype, std::move(store));
}

std::string DecoderWeights::key(const std::array<uint64_t, 2>& fingerprint, const DecoderShard& shard,
                                std::optional<DType> dtype) {
  return fmt::format("{:016x}{:016x} as {}, tp {} of {}", fingerprint[1], fingerprint[0],
                     dtype ? dtype_name(*dtype) : "stored", shard.t, shard.tp);
}

}  // namespace lariat
