// pass_q as data: queries and their running partials rotate round the ring, K/V stay where they are.
// docs/design.md §4.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lariat {

enum class QueryKind : uint8_t {
  kPostQueries,  // shift: send `send_buffer` (send_tokens), receive `origin`'s queries into `buffer`
  kWaitQueries,
  kCompute,      // attend the queries of `origin` in query buffer `buffer`; its first rank starts the partial
  kPostPartial,  // shift: send partial buffer `send_buffer`, receive `origin`'s running partial into `buffer`
  kWaitPartial,
  kMerge,  // fold what was computed last into `origin`'s running partial in `buffer`
};

// Queries: 0 is the member's own, 1 and 2 receive in turn. Partials: 0 and 1 in turn; what a member computes
// for others goes to a place of its own, and is folded in.
struct QueryOp {
  QueryKind kind = QueryKind::kCompute;
  int32_t origin = 0;
  int32_t buffer = 0;
  int32_t send_buffer = 0;
  int64_t tokens = 0;
  int64_t send_tokens = 0;
  friend bool operator==(const QueryOp&, const QueryOp&) = default;
};

// What member `rank` does; tokens: by member, how many queries it has. The queries of a member meet the keys
// of ranks r, r + 1, r + 2, .. in this order, and come home; its result is then in partial buffer
// home_partial(size). The queries of the next step are in flight during every compute but the last, and the
// running partial too from the second on. No ops if there are no queries.
std::vector<QueryOp> rotate_queries(int32_t rank, std::span<const int64_t> tokens);
inline int32_t home_partial(int32_t size) {
  return size == 1 ? 0 : size % 2;
}

// The shifts in order: whether queries or partials move, and tokens sent by member.
struct QueryShift {
  bool partial = false;
  std::vector<int64_t> tokens;
};
std::vector<QueryShift> query_shifts(std::span<const int64_t> tokens);

}  // namespace lariat
