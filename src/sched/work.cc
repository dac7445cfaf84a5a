#include "sched/work.h"

#include <algorithm>

namespace lariat {
namespace {

// Sum of 1..n.
double triangle(int64_t n) {
  return 0.5 * static_cast<double>(n) * static_cast<double>(n + 1);
}

// Keys seen by positions [0, n).
double keys_seen(int64_t n, int64_t window) {
  if (window <= 0 || n <= window) return triangle(n);
  return triangle(window) + static_cast<double>(n - window) * static_cast<double>(window);
}

}  // namespace

double WorkModel::of(int64_t pos0, int64_t n) const {
  return token * static_cast<double>(n) + depth * (keys_seen(pos0 + n, window) - keys_seen(pos0, window));
}

int64_t WorkModel::tokens_within(int64_t pos0, int64_t n_max, double budget) const {
  int64_t low = 0;  // fits
  int64_t high = std::max<int64_t>(n_max, 0);
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (of(pos0, middle) <= budget)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace lariat
