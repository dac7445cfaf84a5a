#include "attention/partial_set.h"

#include <algorithm>
#include <limits>

namespace lariat {

size_t PartialSet::bytes(int32_t blocks, int64_t tokens, int heads, int v_dim) {
  return static_cast<size_t>(blocks * tokens * heads * (int64_t{v_dim} + 1)) * sizeof(float);
}

Status PartialSet::reserve(int32_t blocks, int64_t tokens, int heads, int v_dim) {
  if (const size_t need = bytes(blocks, tokens, heads, v_dim); buffer_.size() < need) {
    auto buffer = Buffer::allocate(need);
    if (!buffer.ok()) return buffer.error().in("partials");
    buffer_ = std::move(buffer).value();
  }
  shape(blocks, tokens, heads, v_dim);
  return Ok{};
}

void PartialSet::shape(int32_t blocks, int64_t tokens, int heads, int v_dim) {
  LARIAT_CHECK(blocks >= 0 && tokens >= 0 && heads > 0 && v_dim > 0 &&
                   bytes(blocks, tokens, heads, v_dim) <= buffer_.size(),
               "{} partials of {} tokens in {} bytes", blocks, tokens, buffer_.size());
  blocks_ = blocks;
  tokens_ = tokens;
  heads_ = heads;
  v_dim_ = v_dim;
}

PartialView PartialSet::view(int32_t block, int64_t first_token) {
  LARIAT_CHECK(block >= 0 && block < blocks_ && first_token >= 0 && first_token <= tokens_,
               "token {} of partial {} of {}", first_token, block, blocks_);
  float* base = reinterpret_cast<float*>(data() + static_cast<size_t>(block) * block_bytes());
  return {base + first_token * heads_ * v_dim_, base + tokens_ * heads_ * v_dim_ + first_token * heads_};
}

void PartialSet::set_identity() {
  for (int32_t i = 0; i < blocks_; ++i) {
    const PartialView all = view(i);
    std::fill_n(all.out, tokens_ * heads_ * v_dim_, 0.0f);
    std::fill_n(all.lse, tokens_ * heads_, -std::numeric_limits<float>::infinity());
  }
}

void merge_tokens(Stream& stream, PartialView a, PartialView b, int64_t tokens, int heads, int v_dim) {
  merge_partial(stream, a, b, tokens * heads, v_dim);
}

}  // namespace lariat
