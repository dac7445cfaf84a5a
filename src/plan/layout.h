// How ranks split a model: tp (heads, MLP columns) times cp (positions), and what each rank then holds.
// docs/design.md §1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "plan/refusal.h"

namespace lariat {

struct Layout {
  static constexpr int32_t kWorldMax = 4096;

  int32_t tp = 1;
  int32_t cp = 1;

  int32_t world() const { return tp * cp; }
  Rank rank(int32_t c, int32_t t) const { return Rank(c * tp + t); }  // tp is the fastest axis
  std::string text() const;                                           // "tp=2,cp=3"
  friend bool operator==(const Layout&, const Layout&) = default;
};

// "tp=A,cp=B", in either order, either left out (1). kInvalidArgument says what it expected; "pp" is
// kUnsupported.
Result<Layout> parse_layout(std::string_view text);
// N ranks over positions: tp=1, cp=N.
Result<Layout> layout_of_ranks(int32_t ranks);

// What a layout makes of a model of `heads` query and `kv_heads` KV heads (one for MLA). The layout must have
// passed check_layout.
struct LayoutShape {
  int32_t duplicates = 1;  // R: ranks of a cp row that hold the same KV heads
  int32_t stripes = 1;     // P = cp * R
  int32_t heads = 0;       // query heads a rank
  int32_t kv_heads = 0;    // KV heads a rank
  int32_t kv_shards = 1;   // different sets of KV heads
};
LayoutShape layout_shape(const Layout& layout, int32_t heads, int32_t kv_heads);

// Which KV heads a rank holds: shard * kv_heads and up; which stripe of their positions.
int32_t kv_shard(const Layout& layout, const LayoutShape& shape, Rank rank);
StripeIndex stripe_of(const Layout& layout, const LayoutShape& shape, Rank rank);

// tp must divide the query heads, and divide the KV heads or be a multiple of them. The refusal names the
// numbers and the nearest layouts that work, those with as many ranks first.
std::optional<Refusal> check_layout(const Layout& layout, int32_t heads, int32_t kv_heads);

}  // namespace lariat
