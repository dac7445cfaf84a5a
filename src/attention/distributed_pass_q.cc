// pass_q: a row's queries and their running partials go round the ring, its keys stay.
#include <algorithm>
#include <utility>

#include "attention/distributed_call.h"

namespace lariat {

Status DistributedAttention::pass_q(Call& call, const QueryRow& row) {
  const StepRow& step = rows_[row.row];
  const int32_t blocks = splits_heads() ? shape_.duplicates : 1;
  if (blocks > 1 && step.resident == 0) return Ok{};  // the new keys rotate
  Meeting own;
  own.rows = {row.row};
  own.first = {0};
  own.tokens = step.n;
  if (blocks > 1) {
    LARIAT_RETURN_IF_ERROR(gather_queries(call, own));
  } else {
    const int64_t width = int64_t{config_.heads} * call.layout().k_dim;
    float* to = queries_[0].as<float>().data();
    for (int64_t t = 0; t < step.n; ++t)
      std::copy_n(call.q(step) + t * call.inputs.q_stride, width, to + t * width);
  }
  for (PartialSet& running : running_) running.shape(blocks, 0, config_.heads, call.layout().v_dim);
  LARIAT_RETURN_IF_ERROR(rotate_row_queries(call, row, blocks));
  PartialSet* result = &running_[home_partial(shape_.members)];
  if (blocks > 1) {
    LARIAT_RETURN_IF_ERROR(merge_duplicates(call, step.n, *result));
    result = &received_;
  }
  for (int32_t d = 0; d < blocks; ++d)
    merge_tokens(*config_.stream, call.running(step), result->view(d), step.n, config_.heads,
                 call.layout().v_dim);
  return Ok{};
}

Status DistributedAttention::rotate_row_queries(Call& call, const QueryRow& row, int32_t blocks) {
  const int v_dim = call.layout().v_dim;
  const auto query_bytes = [&](int64_t tokens) {
    return static_cast<size_t>(blocks * tokens * config_.heads * call.layout().k_dim) * sizeof(float);
  };
  const auto partial_bytes = [&](int64_t tokens) {
    return PartialSet::bytes(blocks, tokens, config_.heads, v_dim);
  };
  const Device device = config_.stream->device();
  PendingPtr queries, partial;
  for (const QueryOp& op : row.ops) {
    switch (op.kind) {
      case QueryKind::kPostQueries:
        queries = config_.comm.ring->ring_shift(
            {queries_[op.send_buffer].data(), query_bytes(op.send_tokens), device},
            {queries_[op.buffer].data(), query_bytes(op.tokens), device});
        break;
      case QueryKind::kWaitQueries:
        LARIAT_RETURN_IF_ERROR(finish(std::exchange(queries, nullptr)));
        break;
      case QueryKind::kCompute:
        attend_queries(call, row, op, blocks);
        break;
      case QueryKind::kPostPartial:
        running_[op.buffer].shape(blocks, op.tokens, config_.heads, v_dim);
        partial = config_.comm.ring->ring_shift(
            {running_[op.send_buffer].data(), partial_bytes(op.send_tokens), device},
            {running_[op.buffer].data(), partial_bytes(op.tokens), device});
        break;
      case QueryKind::kWaitPartial:
        LARIAT_RETURN_IF_ERROR(finish(std::exchange(partial, nullptr)));
        break;
      case QueryKind::kMerge:
        for (int32_t d = 0; d < blocks; ++d)
          merge_tokens(*config_.stream, running_[op.buffer].view(d), aside_.view(d), op.tokens, config_.heads,
                       v_dim);
        break;
    }
  }
  return Ok{};
}

// Own queries start the running partial; those of others are attended aside and folded in when their running
// partial is here.
void DistributedAttention::attend_queries(Call& call, const QueryRow& row, const QueryOp& op,
                                          int32_t blocks) {
  const StepRow& step = rows_[row.row];
  const bool own = op.origin == shape_.member;
  PartialSet& to = own ? running_[0] : aside_;
  to.shape(blocks, op.tokens, config_.heads, call.layout().v_dim);
  const int64_t width = int64_t{config_.heads} * call.layout().k_dim;
  const auto offsets = shape_.store.offsets(shape_.own_stripe());
  std::vector<AttentionRow> attends;
  for (int32_t d = 0; d < blocks; ++d) {
    AttentionRow a =
        call.some_queries(queries_[op.buffer].as<float>().data() + d * op.tokens * width,
                          row.positions[static_cast<size_t>(op.origin)].data(), op.tokens, to.view(d));
    a.kv = call.pages(step);
    a.positions = {shape_.store.period(), offsets.data(), static_cast<int32_t>(offsets.size())};
    a.slot_end = shape_.stored(shape_.member, blocks > 1 ? step.resident : step.length);
    attends.push_back(a);
  }
  attention(*config_.stream, call.params(config_.scale), attends);
}

}  // namespace lariat
