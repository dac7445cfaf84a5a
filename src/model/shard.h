// Which heads, MLP columns and vocabulary rows one tensor-parallel rank holds. docs/design.md §1.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace lariat {

// Half-open range of a dimension.
struct Slice {
  int64_t begin = 0;
  int64_t count = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

struct DecoderShard {
  int32_t tp = 1;
  int32_t t = 0;
  Slice heads;     // query heads
  Slice kv_heads;  // one head, shared with R - 1 other ranks, if tp > G
  Slice ffn;       // MLP columns; uneven where tp does not divide them
  Slice vocab;     // rows of the embedding and of the output head
};

// Bug: a layout that check_layout (plan/layout.h) refuses: tp must divide H, and tp and G one another.
DecoderShard shard_of(const DecoderConfig& config, int32_t tp, int32_t t);

}  // namespace lariat
