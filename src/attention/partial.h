// Attention output over some of the keys, with its log-sum-exp: what ranks exchange and merge.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "ops/attention.h"
#include "tensor/buffer.h"

namespace lariat {

// out [T, H, v_dim] f32 and lse [T, H] f32, natural log, softmax scale applied, in one buffer (out first), so
// that a partial goes over the wire as one block. A new one is the identity: out = 0, lse = -inf.
class Partial {
 public:
  // kResourceExhausted if memory is refused. T = 0 is an empty partial.
  static Result<Partial> create(int64_t tokens, int heads, int v_dim);

  int64_t tokens() const { return tokens_; }
  int heads() const { return heads_; }
  int v_dim() const { return v_dim_; }

  // Tokens [first, tokens()), to be written by `attention`.
  PartialView view(int64_t first = 0);
  std::span<const float> out() const;
  std::span<const std::byte> bytes() const { return {buffer_.data(), buffer_.size()}; }
  std::span<std::byte> bytes() { return {buffer_.data(), buffer_.size()}; }

  void set_identity();

  // Folds `from` into this one (docs/design.md §3). Bug: shapes differ. Moves 12 * T * H * v_dim bytes.
  void merge(Stream& stream, Partial& from);

 private:
  Partial(int64_t tokens, int heads, int v_dim, Buffer buffer)
      : tokens_(tokens), heads_(heads), v_dim_(v_dim), buffer_(std::move(buffer)) {}

  int64_t tokens_ = 0;
  int heads_ = 0;
  int v_dim_ = 0;
  Buffer buffer_;
};

}  // namespace lariat
