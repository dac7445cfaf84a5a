// Half-open ranges of byte offsets, and the sorted disjoint sets of them that mark untrusted text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lariat {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// Adds `r`, which begins at or after the last range's begin, to a sorted disjoint set; empty ranges vanish
// and touching ones join.
inline void append_range(std::vector<ByteRange>& set, ByteRange r) {
  if (r.begin == r.end) return;
  if (!set.empty() && r.begin <= set.back().end) {
    set.back().end = std::max(set.back().end, r.end);
  } else {
    set.push_back(r);
  }
}

// The part of a set inside [window.begin, window.end), with window.begin as the new zero.
inline std::vector<ByteRange> clip_ranges(const std::vector<ByteRange>& set, ByteRange window) {
  std::vector<ByteRange> out;
  auto it =
      std::partition_point(set.begin(), set.end(), [&](const ByteRange& r) { return r.end <= window.begin; });
  for (; it != set.end() && it->begin < window.end; ++it) {
    out.push_back(
        {std::max(it->begin, window.begin) - window.begin, std::min(it->end, window.end) - window.begin});
  }
  return out;
}

}  // namespace lariat
