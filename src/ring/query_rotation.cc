#include "ring/query_rotation.h"

#include <algorithm>

#include "base/check.h"

namespace lariat {
namespace {

int32_t behind(int32_t rank, int32_t steps, int32_t size) {
  return ((rank - steps) % size + size) % size;
}

bool none(std::span<const int64_t> tokens) {
  return std::all_of(tokens.begin(), tokens.end(), [](int64_t n) { return n == 0; });
}

}  // namespace

std::vector<QueryOp> rotate_queries(int32_t rank, std::span<const int64_t> tokens) {
  const auto size = static_cast<int32_t>(tokens.size());
  LARIAT_CHECK(rank >= 0 && rank < size, "rank {} of {}", rank, size);
  std::vector<QueryOp> ops;
  if (none(tokens)) return ops;
  const auto n = [&](int32_t origin) { return tokens[static_cast<size_t>(origin)]; };
  int32_t queries = 0;  // buffer of the step's queries
  for (int32_t step = 0; step < size; ++step) {
    const int32_t origin = behind(rank, step, size);
    const int32_t next = behind(rank, step + 1, size);
    const int32_t arriving = 1 + step % 2;
    if (step + 1 < size)
      ops.push_back({QueryKind::kPostQueries, next, arriving, queries, n(next), n(origin)});
    if (n(origin) > 0) ops.push_back({QueryKind::kCompute, origin, queries, 0, n(origin), 0});
    const int32_t running = step % 2;
    if (step > 0) {
      ops.push_back({QueryKind::kWaitPartial, origin, running, 0, n(origin), 0});
      if (n(origin) > 0) ops.push_back({QueryKind::kMerge, origin, running, 0, n(origin), 0});
    }
    if (size > 1) ops.push_back({QueryKind::kPostPartial, next, (step + 1) % 2, running, n(next), n(origin)});
    if (step + 1 < size) {
      ops.push_back({QueryKind::kWaitQueries, next, arriving, 0, n(next), 0});
      queries = arriving;
    }
  }
  if (size > 1) ops.push_back({QueryKind::kWaitPartial, rank, home_partial(size), 0, n(rank), 0});
  return ops;
}

std::vector<QueryShift> query_shifts(std::span<const int64_t> tokens) {
  const auto size = static_cast<int32_t>(tokens.size());
  std::vector<QueryShift> shifts;
  if (size == 1 || none(tokens)) return shifts;
  for (int32_t step = 0; step < size; ++step) {
    std::vector<int64_t> sent;
    for (int32_t m = 0; m < size; ++m) sent.push_back(tokens[static_cast<size_t>(behind(m, step, size))]);
    if (step + 1 < size) shifts.push_back({false, sent});
    shifts.push_back({true, sent});
  }
  return shifts;
}

}  // namespace lariat
