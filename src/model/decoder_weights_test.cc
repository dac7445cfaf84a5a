// Weights found in a store that another process could have packed are those that were packed.
#include "model/decoder_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/model_files.h"
#include "models/embedded.h"

namespace lariat {
namespace {

struct Needle {
  Needle() {
    auto resolved = resolve_model("needle-5m", {.dirs = {}, .embedded = embedded_models()});
    EXPECT_TRUE(resolved.ok());
    files.emplace(std::move(*resolved));
    auto opened = open_weights(*files, nullptr);
    EXPECT_TRUE(opened.ok());
    source = std::move(*opened);
  }
  PackedStore pack(const DecoderShard& shard, std::optional<DType> dtype) const {
    PackedStore store({.shared = true});
    EXPECT_TRUE(DecoderWeights::pack(files->config, shard, *source, dtype, {*stream, {}}, store).ok());
    store.seal();
    return store;
  }

  std::optional<ModelFiles> files;
  std::shared_ptr<const TensorSource> source;
  std::unique_ptr<Stream> stream = Stream::cpu(1);
};

void expect_same(const PackedMatrix& a, const PackedMatrix& b) {
  ASSERT_EQ(a.n, b.n);
  ASSERT_EQ(a.k, b.k);
  ASSERT_EQ(a.dtype, b.dtype);
  EXPECT_NE(a.data, b.data);
  EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())), 0);
}

TEST(DecoderWeights, MappedWeightsAreThePackedOnes) {
  const Needle needle;
  const DecoderConfig& config = needle.files->config;
  for (const int32_t tp : {1, 2}) {
    const DecoderShard shard = shard_of(config, tp, tp - 1);
    const auto loaded =
        DecoderWeights::load(config, shard, *needle.source, DType::kBF16, {*needle.stream, {}});
    ASSERT_TRUE(loaded.ok());
    const PackedStore packed = needle.pack(shard, DType::kBF16);
    const std::vector<int> fds = packed.fds();
    auto opened = PackedStore::open(fds, packed.table());
    ASSERT_TRUE(opened.ok());
    const auto mapped =
        DecoderWeights::from_store(config, shard, *needle.source, DType::kBF16, std::move(*opened));
    ASSERT_TRUE(mapped.ok()) << mapped.error().message;
    const DecoderWeights& a = **loaded;
    const DecoderWeights& b = **mapped;
    expect_same(a.embedding, b.embedding);
    expect_same(a.head, b.head);
    EXPECT_EQ(std::memcmp(a.final_norm, b.final_norm, static_cast<size_t>(config.hidden) * 4), 0);
    ASSERT_EQ(a.layers.size(), b.layers.size());
    ASSERT_EQ(b.layers.size(), static_cast<size_t>(config.layers));
    for (size_t i = 0; i < a.layers.size(); ++i) {
      expect_same(a.layers[i].qkv, b.layers[i].qkv);
      expect_same(a.layers[i].o, b.layers[i].o);
      expect_same(a.layers[i].gate_up, b.layers[i].gate_up);
      expect_same(a.layers[i].down, b.layers[i].down);
      EXPECT_EQ(
          std::memcmp(a.layers[i].mlp_norm, b.layers[i].mlp_norm, static_cast<size_t>(config.hidden) * 4), 0);
    }
    EXPECT_EQ(b.shard.t, tp - 1);
  }
}

TEST(DecoderWeights, StoreOfOtherWeightsIsRefused) {
  const Needle needle;
  const DecoderConfig& config = needle.files->config;
  const DecoderShard whole = shard_of(config, 1, 0);
  const auto from = [&](const DecoderShard& shard, DType dtype, PackedStore store) {
    return DecoderWeights::from_store(config, shard, *needle.source, dtype, std::move(store));
  };
  EXPECT_TRUE(from(whole, DType::kF32, needle.pack(whole, DType::kF32)).ok());
  EXPECT_EQ(from(whole, DType::kBF16, needle.pack(whole, DType::kF32)).error().code, Errc::kCorruptData);
  EXPECT_EQ(from(shard_of(config, 2, 0), DType::kF32, needle.pack(whole, DType::kF32)).error().code,
            Errc::kCorruptData);
  PackedStore empty({.shared = true});
  empty.seal();
  EXPECT_EQ(from(whole, DType::kF32, std::move(empty)).error().code, Errc::kCorruptData);
}

TEST(DecoderWeights, KeyTellsWhatIsPackedApart) {
  const Needle needle;
  const DecoderConfig& config = needle.files->config;
  const std::string key = DecoderWeights::key({1, 2}, shard_of(config, 2, 0), std::nullopt);
  EXPECT_EQ(key, DecoderWeights::key({1, 2}, shard_of(config, 2, 0), std::nullopt));
  EXPECT_NE(key, DecoderWeights::key({2, 1}, shard_of(config, 2, 0), std::nullopt));
  EXPECT_NE(key, DecoderWeights::key({1, 2}, shard_of(config, 2, 1), std::nullopt));
  EXPECT_NE(key, DecoderWeights::key({1, 2}, shard_of(config, 1, 0), std::nullopt));
  EXPECT_NE(key, DecoderWeights::key({1, 2}, shard_of(config, 2, 0), DType::kF32));
}

}  // namespace
}  // namespace lariat
