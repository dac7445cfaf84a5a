#include "app/rank_placement.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace lariat {
namespace {

Refusal placement_refusal(const LayoutOptions& options, const LayoutShape& shape, const Error& why) {
  const std::vector<int32_t>& shares = options.rank_shares;
  if (why.param != "interleave")
    return {"rank-shares", why.message,
            fmt::format("{}", fmt::join(std::vector<int32_t>(shares.size(), 1), ","))};
  int64_t entries = shape.stripes;
  if (!shares.empty() && shape.duplicates == 1) {
    int32_t divisor = 0;
    for (const int32_t share : shares) divisor = std::gcd(divisor, share);
    entries = std::accumulate(shares.begin(), shares.end(), int64_t{0}) / divisor;
  }
  return {"interleave", why.message, std::to_string(Placement::kPeriodMax / entries)};
}

}  // namespace

LayoutShape shape_of(const DecoderConfig& c, const Layout& layout) {
  return layout_shape(layout, static_cast<int32_t>(c.heads), static_cast<int32_t>(c.kv_heads));
}

Result<Placement> stripe_placement(const LayoutOptions& options, const LayoutShape& shape) {
  const std::vector<int32_t>& shares = options.rank_shares;
  if (std::adjacent_find(shares.begin(), shares.end(), std::not_equal_to<>()) == shares.end())
    return Placement::equal(shape.stripes, options.interleave);
  if (shape.duplicates > 1) {
    return make_error(Errc::kUnsupported,
                      fmt::format("unequal shares need a tp of at most the model's KV heads; tp={} is {} "
                                  "times as many",
                                  options.tp, shape.duplicates),
                      "rank-shares");
  }
  return Placement::shares(shares, options.interleave);
}

LayoutOptions placeable(const DecoderConfig& c, LayoutOptions options, std::vector<Refusal>& refusals) {
  if (auto r =
          check_layout(options.layout(), static_cast<int32_t>(c.heads), static_cast<int32_t>(c.kv_heads))) {
    const auto nearest = parse_layout(std::string_view(r->nearest).substr(0, r->nearest.find(" or ")));
    LARIAT_CHECK(nearest.ok(), "the nearest layout \"{}\" is none", r->nearest);
    options.tp = nearest->tp;
    options.cp = nearest->cp;
    if (options.rank_shares.size() != static_cast<size_t>(options.cp)) options.rank_shares.clear();
    refusals.push_back(std::move(*r));
  }
  const LayoutShape shape = shape_of(c, options.layout());
  if (const auto placement = stripe_placement(options, shape); !placement.ok()) {
    refusals.push_back(placement_refusal(options, shape, placement.error()));
    options.rank_shares.clear();
    options.interleave = std::min(options.interleave, Placement::kPeriodMax / shape.stripes);
  }
  return options;
}

std::vector<Refusal> contradictions(const LayoutOptions& options) {
  std::vector<Refusal> refusals;
  if (options.kv_mode == KvMode::kReplicated && options.strategy == Strategy::kPassQ)
    refusals.push_back({"strategy",
                        "pass_q leaves K and V where they are; replicated K and V pass by every rank, "
                        "which keeps them",
                        "pass_kv"});
  return refusals;
}

}  // namespace lariat
