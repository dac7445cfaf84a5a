#include "attention/partial.h"

#include <algorithm>
#include <limits>

namespace lariat {

Result<Partial> Partial::create(int64_t tokens, int heads, int v_dim) {
  LARIAT_CHECK(tokens >= 0 && heads > 0 && v_dim > 0, "partial of {} tokens, {} heads of {}", tokens, heads,
               v_dim);
  auto buffer = Buffer::allocate(static_cast<size_t>(tokens * heads * (v_dim + 1)) * sizeof(float));
  if (!buffer.ok()) return buffer.error().in("partial");
  Partial partial(tokens, heads, v_dim, std::move(buffer).value());
  partial.set_identity();
  return partial;
}

PartialView Partial::view(int64_t first) {
  LARIAT_CHECK(first >= 0 && first <= tokens_, "token {} of {}", first, tokens_);
  float* base = buffer_.as<float>().data();
  return PartialView{base + first * heads_ * v_dim_, base + tokens_ * heads_ * v_dim_ + first * heads_};
}

std::span<const float> Partial::out() const {
  return buffer_.as<float>().first(static_cast<size_t>(tokens_ * heads_ * v_dim_));
}

void Partial::set_identity() {
  const PartialView all = view();
  std::fill_n(all.out, tokens_ * heads_ * v_dim_, 0.0f);
  std::fill_n(all.lse, tokens_ * heads_, -std::numeric_limits<float>::infinity());
}

void Partial::merge(Stream& stream, Partial& from) {
  LARIAT_CHECK(tokens_ == from.tokens_ && heads_ == from.heads_ && v_dim_ == from.v_dim_,
               "merge of [{}, {}, {}] with [{}, {}, {}]", tokens_, heads_, v_dim_, from.tokens_, from.heads_,
               from.v_dim_);
  merge_partial(stream, view(), from.view(), tokens_ * heads_, v_dim_);
}

}  // namespace lariat
