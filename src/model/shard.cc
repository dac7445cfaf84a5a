#include "model/shard.h"

#include "base/check.h"

namespace lariat {
namespace {

// Part `t` of `tp` nearly equal parts.
Slice even_part(int64_t n, int32_t tp, int32_t t) {
  const int64_t begin = n * t / tp;
  return {begin, n * (t + 1) / tp - begin};
}

}  // namespace

DecoderShard shard_of(const DecoderConfig& c, int32_t tp, int32_t t) {
  LARIAT_CHECK(tp >= 1 && t >= 0 && t < tp, "rank {} of {}", t, tp);
  LARIAT_CHECK(c.heads % tp == 0 && (c.kv_heads % tp == 0 || tp % c.kv_heads == 0),
               "{} and {} heads over tp {}", c.heads, c.kv_heads, tp);
  DecoderShard s;
  s.tp = tp;
  s.t = t;
  s.heads = even_part(c.heads, tp, t);
  if (tp <= c.kv_heads) {
    s.kv_heads = even_part(c.kv_heads, tp, t);
  } else {
    s.kv_heads = {t / (tp / c.kv_heads), 1};
  }
  s.ffn = even_part(c.ffn, tp, t);
  s.vocab = even_part(c.vocab, tp, t);
  return s;
}

}  // namespace lariat
