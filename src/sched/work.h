// How much work a chunk of a prompt is, and how long a chunk a bounded amount of work allows.
#pragma once

#include <cstdint>

namespace lariat {

// Work of a token at position p: token + depth * (keys it sees), keys = p + 1, or at most `window` of them.
// The unit is free (flops, say); only ratios matter.
struct WorkModel {
  double token = 1;    // parameters a token meets, times two
  double depth = 0;    // attention, a token and a visible key: 4 * heads * head_dim * layers
  int64_t window = 0;  // 0: every earlier key is visible

  // Of positions [pos0, pos0 + n). O(1).
  double of(int64_t pos0, int64_t n) const;
  // The largest n <= n_max with of(pos0, n) <= budget; 0 if not even one token fits. O(log n_max).
  int64_t tokens_within(int64_t pos0, int64_t n_max, double budget) const;
};

}  // namespace lariat
