#include "weights/fingerprint.h"

#include <xxhash.h>

#include <memory>

namespace lariat {
namespace {

constexpr size_t kBlock = 4096;
constexpr size_t kBlocks = 16;

struct Free {
  void operator()(XXH3_state_t* s) const { XXH3_freeState(s); }
};

void add_data(XXH3_state_t* state, const ConstView& view) {
  const auto* data = static_cast<const std::byte*>(view.data);
  const auto size = static_cast<size_t>(view.bytes());
  if (size <= kBlock * kBlocks) {
    if (size > 0) XXH3_128bits_update(state, data, size);
    return;
  }
  for (size_t i = 0; i < kBlocks; ++i) {
    XXH3_128bits_update(state, data + (size - kBlock) / (kBlocks - 1) * i, kBlock);
  }
  // Integer division may stop the spread short of the end.
  XXH3_128bits_update(state, data + size - kBlock, kBlock);
}

}  // namespace

std::array<uint64_t, 2> weights_fingerprint(const TensorSource& source,
                                            std::span<const TensorRequirement> required) {
  const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
  LARIAT_CHECK(state != nullptr, "no memory for a hash state");
  XXH3_128bits_reset(state.get());
  for (const TensorRequirement& r : required) {
    const auto view = source.find(r.name);
    if (!view) continue;
    const std::string header =
        r.name + " " + std::string(dtype_name(view->dtype)) + " " + view->shape.str() + ";";
    XXH3_128bits_update(state.get(), header.data(), header.size());
    add_data(state.get(), *view);
  }
  const XXH128_hash_t h = XXH3_128bits_digest(state.get());
  return {h.low64, h.high64};
}

}  // namespace lariat
