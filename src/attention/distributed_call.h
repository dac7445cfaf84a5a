// What one layer() call of DistributedAttention works on.
#pragma once

#include "attention/distributed_attention.h"

namespace lariat {

struct DistributedAttention::Call {
  LayerClass& kind;
  KvStore& store;
  LayerId index;  // in the store
  const LayerInputs& inputs;
  float* out;  // [T, heads, v_dim], the running result with `lse` beside it
  float* lse;
  int heads;

  const KvLayout& layout() const { return store.config().layout; }
  AttentionParams params(float scale) const { return {heads, scale, kind.mask}; }
  KvPages pages(const StepRow& row) const {
    return store.pages(index, row.pages[static_cast<size_t>(kind.group)]);
  }
  const float* q(const StepRow& row) const { return inputs.q + row.first * inputs.q_stride; }
  PartialView running(const StepRow& row) const {
    return {out + row.first * heads * layout().v_dim, lse + row.first * heads};
  }
  // The row's own queries, folded into the running result.
  AttentionRow own_queries(const StepRow& row) const {
    AttentionRow a;
    a.q = q(row);
    a.q_stride = inputs.q_stride;
    a.q_pos = row.positions;
    a.t = row.n;
    a.out = running(row);
    a.accumulate = true;
    return a;
  }
  // `queries` [tokens, heads, k_dim] of anybody, into `to`.
  AttentionRow some_queries(const float* queries, const int32_t* positions, int64_t tokens,
                            PartialView to) const {
    AttentionRow a;
    a.q = queries;
    a.q_pos = positions;
    a.t = tokens;
    a.out = to;
    return a;
  }
};

}  // namespace lariat
