// Several partials of one shape, one behind the other: what a gather receives, what an exchange sends.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ops/attention.h"
#include "tensor/buffer.h"

namespace lariat {

// Block i is out [T, H, v_dim] then lse [T, H], f32, natural log. The shape changes from step to step, the
// memory only grows.
class PartialSet {
 public:
  // kResourceExhausted if memory is refused. Contents are undefined until written or set_identity().
  Status reserve(int32_t blocks, int64_t tokens, int heads, int v_dim);
  // Within what was reserved. Bug: more.
  void shape(int32_t blocks, int64_t tokens, int heads, int v_dim);

  PartialView view(int32_t block, int64_t first_token = 0);
  void set_identity();

  std::byte* data() { return buffer_.data(); }
  size_t reserved_bytes() const { return buffer_.size(); }
  std::byte* block(int32_t i) { return data() + static_cast<size_t>(i) * block_bytes(); }
  size_t block_bytes() const { return bytes(1, tokens_, heads_, v_dim_); }
  static size_t bytes(int32_t blocks, int64_t tokens, int heads, int v_dim);

 private:
  Buffer buffer_;
  int32_t blocks_ = 0;
  int64_t tokens_ = 0;
  int heads_ = 0;
  int v_dim_ = 0;
};

// Tokens [first, first + tokens) of both, b folded into a.
void merge_tokens(Stream& stream, PartialView a, PartialView b, int64_t tokens, int heads, int v_dim);

}  // namespace lariat
