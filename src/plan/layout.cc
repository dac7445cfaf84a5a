#include "plan/layout.h"

#include <algorithm>
#include <charconv>

namespace lariat {
namespace {

Error bad_layout(std::string message) {
  return make_error(Errc::kInvalidArgument, std::move(message), "layout");
}

Result<int32_t> parse_ranks(std::string_view text, std::string_view key) {
  int32_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || end != text.data() + text.size() || value < 1 || value > Layout::kWorldMax)
    return bad_layout(fmt::format("{} is a number from 1 to {}, not \"{}\"", key, Layout::kWorldMax, text));
  return value;
}

bool splits(int32_t tp, int32_t heads, int32_t kv_heads) {
  return heads % tp == 0 && (kv_heads % tp == 0 || tp % kv_heads == 0);
}

// The nearest tp below and above that splits the heads, for which `fits` holds.
template <typename Fits>
std::vector<int32_t> nearest_tp(int32_t tp, int32_t heads, int32_t kv_heads, Fits fits) {
  std::vector<int32_t> found;
  for (int32_t low = tp - 1; low >= 1; --low)
    if (splits(low, heads, kv_heads) && fits(low)) {
      found.push_back(low);
      break;
    }
  for (int32_t high = tp + 1; high <= std::min(heads, Layout::kWorldMax); ++high)
    if (splits(high, heads, kv_heads) && fits(high)) {
      found.push_back(high);
      break;
    }
  return found;
}

}  // namespace

std::string Layout::text() const {
  return fmt::format("tp={},cp={}", tp, cp);
}

Result<Layout> parse_layout(std::string_view text) {
  Layout layout;
  bool seen_tp = false, seen_cp = false;
  for (std::string_view rest = text; true;) {
    const std::string_view part = rest.substr(0, rest.find(','));
    const size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    if (key == "pp") return make_error(Errc::kUnsupported, "layers are not split over ranks (pp)", "layout");
    if (equals == std::string_view::npos || (key != "tp" && key != "cp"))
      return bad_layout(fmt::format("a layout is tp=A,cp=B, not \"{}\"", text));
    bool& seen = key == "tp" ? seen_tp : seen_cp;
    if (seen) return bad_layout(fmt::format("{} is given twice in \"{}\"", key, text));
    seen = true;
    LARIAT_ASSIGN((key == "tp" ? layout.tp : layout.cp), parse_ranks(part.substr(equals + 1), key));
    if (part.size() == rest.size()) break;
    rest.remove_prefix(part.size() + 1);
  }
  if (int64_t{layout.tp} * layout.cp > Layout::kWorldMax)
    return bad_layout(fmt::format("{} is {} ranks, at most {}", layout.text(), int64_t{layout.tp} * layout.cp,
                                  Layout::kWorldMax));
  return layout;
}

Result<Layout> layout_of_ranks(int32_t ranks) {
  if (ranks < 1 || ranks > Layout::kWorldMax)
    return make_error(Errc::kInvalidArgument,
                      fmt::format("ranks is a number from 1 to {}, not {}", Layout::kWorldMax, ranks),
                      "ranks");
  return Layout{.tp = 1, .cp = ranks};
}

LayoutShape layout_shape(const Layout& layout, int32_t heads, int32_t kv_heads) {
  LARIAT_CHECK(heads >= 1 && kv_heads >= 1 && splits(layout.tp, heads, kv_heads),
               "{} of {} heads, {} KV heads", layout.text(), heads, kv_heads);
  LayoutShape shape;
  shape.duplicates = std::max(1, layout.tp / kv_heads);
  shape.stripes = layout.cp * shape.duplicates;
  shape.heads = heads / layout.tp;
  shape.kv_heads = std::max(1, kv_heads / layout.tp);
  shape.kv_shards = layout.tp / shape.duplicates;
  return shape;
}

int32_t kv_shard(const Layout& layout, const LayoutShape& shape, Rank rank) {
  return rank.get() % layout.tp / shape.duplicates;
}

StripeIndex stripe_of(const Layout& layout, const LayoutShape& shape, Rank rank) {
  const int32_t c = rank.get() / layout.tp;
  const int32_t t = rank.get() % layout.tp;
  return StripeIndex(c * shape.duplicates + t % shape.duplicates);
}

std::optional<Refusal> check_layout(const Layout& layout, int32_t heads, int32_t kv_heads) {
  LARIAT_CHECK(heads >= 1 && kv_heads >= 1, "{} heads, {} KV heads", heads, kv_heads);
  const int32_t tp = layout.tp;
  if (splits(tp, heads, kv_heads)) return std::nullopt;
  Refusal refusal;
  refusal.setting = "layout";
  refusal.reason =
      heads % tp != 0
          ? fmt::format("{} query heads do not divide over tp={}", heads, tp)
          : fmt::format("tp={} neither divides {} KV heads nor is a multiple of them", tp, kv_heads);
  const int32_t world = layout.world();
  std::vector<std::string> nearest;
  for (const int32_t other : nearest_tp(tp, heads, kv_heads, [&](int32_t n) { return world % n == 0; }))
    nearest.push_back(Layout{other, world / other}.text());
  for (const int32_t other : nearest_tp(tp, heads, kv_heads, [&](int32_t n) { return world % n != 0; }))
    nearest.push_back(Layout{other, layout.cp}.text());
  for (const std::string& text : nearest) refusal.nearest += (refusal.nearest.empty() ? "" : " or ") + text;
  return refusal;
}

}  // namespace lariat
