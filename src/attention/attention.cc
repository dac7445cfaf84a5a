#include "attention/attention.h"

#include <fmt/core.h>

#include "attention/distributed_attention.h"
#include "attention/local_attention.h"

namespace lariat {
namespace {

Status check_config(const AttentionConfig& config) {
  LARIAT_CHECK(config.stream && config.heads > 0, "attention without a stream or heads");
  if (config.groups.empty() || config.layers.empty())
    return make_error(Errc::kInvalidArgument, "attention without layers or K/V stores");
  for (const KvStore* store : config.groups) {
    const KvLayout& layout = store->config().layout;
    if (config.heads % layout.kv_heads != 0)
      return make_error(Errc::kInvalidArgument, fmt::format("{} query heads do not divide over {} KV heads",
                                                            config.heads, layout.kv_heads));
    const int32_t turn = config.comm.replicated ? 1 : config.placement.slots_per_period(config.stripe);
    if (layout.slots % turn != 0)
      return make_error(
          Errc::kInvalidArgument,
          fmt::format("a page of {} slots is not a whole number of periods of {}", layout.slots, turn));
  }
  for (const LayerCache& layer : config.layers) {
    if (layer.group < 0 || static_cast<size_t>(layer.group) >= config.groups.size() ||
        layer.index.get() < 0 ||
        layer.index.get() >= config.groups[static_cast<size_t>(layer.group)]->config().layers)
      return make_error(Errc::kInvalidArgument, fmt::format("layer {} of cache group {} does not exist",
                                                            layer.index.get(), layer.group));
    if (layer.mask.kind == MaskKind::kWindow && layer.mask.window < 1)
      return make_error(Errc::kInvalidArgument, fmt::format("a window of {} positions", layer.mask.window));
  }
  return Ok{};
}

}  // namespace

Result<std::unique_ptr<AttentionBackend>> create_attention(const AttentionConfig& config) {
  if (config.stripe.get() < 0 || config.stripe.get() >= config.placement.stripes())
    return make_error(Errc::kInvalidArgument,
                      fmt::format("stripe {} of {}", config.stripe.get(), config.placement.stripes()));
  LARIAT_RETURN_IF_ERROR(check_config(config));
  LARIAT_ASSIGN(StripeShape shape, StripeShape::create(config));
  if (config.placement.stripes() == 1)
    return std::unique_ptr<AttentionBackend>(std::make_unique<LocalAttention>(config));
  return std::unique_ptr<AttentionBackend>(std::make_unique<DistributedAttention>(config, std::move(shape)));
}

}  // namespace lariat
