#include "weights/random_source.h"

#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "base/philox.h"
#include "tensor/buffer.h"

namespace lariat {
namespace {

// FNV-1a: a name's place in the key space. Not a defence, only a spread.
uint64_t name_key(std::string_view name, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h ^ (seed * 0x9E3779B97F4A7C15u);
}

// Sum of four uniform bytes, centred and scaled to variance 1: close enough to normal for weights, one Philox
// block for four values, and free of the library functions whose last bit differs between hosts.
float near_normal(uint32_t bits) {
  const auto sum =
      static_cast<int>((bits & 0xff) + ((bits >> 8) & 0xff) + ((bits >> 16) & 0xff) + (bits >> 24));
  constexpr float kInverseDeviation = 1.0f / 147.8005413f;  // variance 4 * (256^2 - 1) / 12
  return static_cast<float>(sum - 510) * kInverseDeviation;
}

struct Distribution {
  float mean = 0;
  float deviation = 0;
};

Distribution distribution_of(const TensorRequirement& t) {
  const std::string_view name = t.name;
  if (name.ends_with("norm.weight")) return {1.0f, 0.02f};
  if (name.ends_with(".bias") || t.shape.rank() == 0) return {0.0f, 0.02f};
  const auto fan_in = static_cast<float>(std::max<int64_t>(1, t.shape[t.shape.rank() - 1]));
  return {0.0f, 1.0f / std::sqrt(fan_in)};
}

template <typename T, typename Convert>
void fill(Buffer& buffer, uint64_t key, Distribution d, Convert convert) {
  const std::array<uint32_t, 2> k = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  const std::span<T> out = buffer.as<T>();
  for (size_t i = 0; i < out.size(); i += 4) {
    const auto block =
        philox4x32({static_cast<uint32_t>(i / 4), static_cast<uint32_t>((i / 4) >> 32), 0, 0}, k);
    for (size_t j = 0; j < std::min<size_t>(4, out.size() - i); ++j) {
      out[i + j] = convert(d.mean + d.deviation * near_normal(block[j]));
    }
  }
}

class RandomSource final : public TensorSource {
 public:
  RandomSource(std::span<const TensorRequirement> tensors, const RandomWeights& options) : options_(options) {
    for (const TensorRequirement& t : tensors) entries_.try_emplace(t.name, t);
  }

  std::optional<ConstView> find(std::string_view name) const override {
    const auto it = entries_.find(name);
    if (it == entries_.end()) return std::nullopt;
    Entry& e = it->second;
    const std::lock_guard lock(e.mutex);
    if (e.buffer.size() == 0 && !make(e)) return std::nullopt;
    return ConstView{e.buffer.data(), options_.dtype, e.need.shape};
  }
  std::optional<TensorMeta> describe(std::string_view name) const override {
    const auto it = entries_.find(name);
    if (it == entries_.end()) return std::nullopt;
    return TensorMeta{options_.dtype, it->second.need.shape};
  }
  std::vector<std::string_view> names() const override {
    std::vector<std::string_view> result;
    result.reserve(entries_.size());
    for (const auto& [name, entry] : entries_) result.push_back(name);
    return result;
  }
  std::string unusable(std::string_view name) const override {
    const auto it = entries_.find(name);
    if (it == entries_.end()) return {};
    const std::lock_guard lock(it->second.mutex);
    return it->second.fault;
  }
  void release(std::string_view name) const override {
    const auto it = entries_.find(name);
    if (it == entries_.end()) return;
    const std::lock_guard lock(it->second.mutex);
    it->second.buffer = Buffer();
  }

 private:
  struct Entry {
    explicit Entry(TensorRequirement t) : need(std::move(t)) {}
    TensorRequirement need;
    std::mutex mutex;
    Buffer buffer;
    std::string fault;
  };

  bool make(Entry& e) const {
    const auto bytes = static_cast<size_t>(e.need.shape.elements()) * dtype_size(options_.dtype);
    auto buffer = Buffer::allocate(bytes);
    if (!buffer.ok()) {
      e.fault = "too large: " + buffer.error().message;
      return false;
    }
    e.buffer = std::move(*buffer);
    const uint64_t key = name_key(e.need.name, options_.seed);
    const Distribution d = distribution_of(e.need);
    if (options_.dtype == DType::kF32) fill<float>(e.buffer, key, d, [](float v) { return v; });
    if (options_.dtype == DType::kBF16) fill<Bf16>(e.buffer, key, d, f32_to_bf16);
    if (options_.dtype == DType::kF16) fill<F16>(e.buffer, key, d, f32_to_f16);
    return true;
  }

  const RandomWeights options_;
  mutable std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace

std::unique_ptr<TensorSource> random_source(std::span<const TensorRequirement> tensors,
                                            const RandomWeights& options) {
  LARIAT_CHECK(options.dtype == DType::kF32 || options.dtype == DType::kBF16 || options.dtype == DType::kF16,
               "random weights of type {}", dtype_name(options.dtype));
  return std::make_unique<RandomSource>(tensors, options);
}

}  // namespace lariat
