// One layer: the exchanges of a step, in the order every rank derived.
#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/distributed_call.h"

namespace lariat {

Status DistributedAttention::finish(PendingPtr pending) {
  return pending->wait(CommClock::now() + config_.comm.timeout);
}

Status DistributedAttention::layer(LayerId layer, const LayerInputs& inputs, float* out) {
  LARIAT_CHECK(layer.get() >= 0 && static_cast<size_t>(layer.get()) < config_.layers.size(), "layer {} of {}",
               layer.get(), config_.layers.size());
  const LayerCache& cache = config_.layers[static_cast<size_t>(layer.get())];
  Call call{classes_[class_of_layer_[static_cast<size_t>(layer.get())]],
            *config_.groups[static_cast<size_t>(cache.group)],
            cache.index,
            inputs,
            out,
            lse_.as<float>().data(),
            config_.heads};
  store_new(call);
  for (const StepRow& row : rows_) {
    const PartialView all = call.running(row);
    std::fill_n(all.out, row.n * config_.heads * call.layout().v_dim, 0.0f);
    std::fill_n(all.lse, row.n * config_.heads, -std::numeric_limits<float>::infinity());
  }
  return fail(run(call));
}

// After an error of one group the other group's peers wait for this rank too.
Status DistributedAttention::fail(Status status) {
  if (status.ok()) return status;
  for (Group* group : {config_.comm.ring, config_.comm.duplicates})
    if (group) group->abort(status.error());
  return status;
}

void DistributedAttention::store_new(Call& call) {
  std::vector<KvWriteArgs> writes;
  for (size_t r = 0; r < rows_.size(); ++r) {
    const StepRow& row = rows_[r];
    writes.push_back({call.inputs.k + row.first * call.inputs.k_stride,
                      call.inputs.v + row.first * call.inputs.v_stride, call.inputs.k_stride,
                      call.inputs.v_stride, slots_.data() + first_slot_[r], row.n, call.pages(row)});
  }
  kv_write(*config_.stream, writes);
}

Status DistributedAttention::run(Call& call) {
  for (const QueryRow& row : query_rows_) LARIAT_RETURN_IF_ERROR(pass_q(call, row));
  const auto v_dim = call.layout().v_dim;
  const int32_t blocks = shape_.duplicates;
  if (!context_.rows.empty()) {
    LARIAT_RETURN_IF_ERROR(gather_queries(call, context_));
    aside_.shape(blocks, context_.tokens, config_.heads, v_dim);
    aside_.set_identity();
  }
  LARIAT_RETURN_IF_ERROR(rotate(call));
  if (!context_.rows.empty()) {
    LARIAT_RETURN_IF_ERROR(merge_duplicates(call, context_.tokens, aside_));
    for (int32_t d = 0; d < blocks; ++d)
      for (size_t i = 0; i < context_.rows.size(); ++i) {
        const StepRow& row = rows_[context_.rows[i]];
        merge_tokens(*config_.stream, call.running(row), received_.view(d, context_.first[i]), row.n,
                     config_.heads, v_dim);
      }
  }
  if (!gather_.rows.empty()) LARIAT_RETURN_IF_ERROR(gather(call));
  attend_local(call);
  return Ok{};
}

// queries_[0] [R][tokens, heads, k_dim] = the meeting's queries of every duplicate, whose heads all read this
// rank's KV head.
Status DistributedAttention::gather_queries(Call& call, const Meeting& meeting) {
  const int64_t width = int64_t{config_.heads} * call.layout().k_dim;
  float* own = own_queries_.as<float>().data();
  for (size_t i = 0; i < meeting.rows.size(); ++i) {
    const StepRow& row = rows_[meeting.rows[i]];
    for (int64_t t = 0; t < row.n; ++t)
      std::copy_n(call.q(row) + t * call.inputs.q_stride, width, own + (meeting.first[i] + t) * width);
  }
  const auto bytes = static_cast<size_t>(meeting.tokens * width) * sizeof(float);
  const Device device = config_.stream->device();
  return finish(config_.comm.duplicates->all_gather(
      {own, bytes, device}, {queries_[0].data(), bytes * static_cast<size_t>(shape_.duplicates), device}));
}

// received_ [R] = what each duplicate attended for this rank's heads; `from` block j is for duplicate j.
Status DistributedAttention::merge_duplicates(Call& call, int64_t tokens, PartialSet& from) {
  received_.shape(shape_.duplicates, tokens, config_.heads, call.layout().v_dim);
  const size_t bytes = received_.block_bytes() * static_cast<size_t>(shape_.duplicates);
  const Device device = config_.stream->device();
  return finish(
      config_.comm.duplicates->all_to_all({from.data(), bytes, device}, {received_.data(), bytes, device}));
}

Status DistributedAttention::rotate(Call& call) {
  const RotationPlan& plan = call.kind.rotation;
  const BlockBytes bytes = block_bytes(call.layout());
  const Device device = config_.stream->device();
  PendingPtr shift;
  bool still = false;
  for (const RotateOp& op : plan.ops) {
    switch (op.kind) {
      case RotateKind::kLoad:
        load_own(call, op);
        break;
      case RotateKind::kPost:
        shift = config_.comm.ring->ring_shift(
            {blocks_[op.send_buffer].data(), static_cast<size_t>(bytes(op.send_slots)), device},
            {blocks_[op.buffer].data(), static_cast<size_t>(bytes(op.slots)), device});
        // What needs no block is attended while the first is on its way.
        if (!still) attend_still(call);
        still = true;
        break;
      case RotateKind::kCompute:
        attend_block(call, op);
        keep_block(call, op);
        break;
      case RotateKind::kWait:
        LARIAT_RETURN_IF_ERROR(finish(std::move(shift)));
        break;
    }
  }
  if (!still) attend_still(call);
  return Ok{};
}

void DistributedAttention::load_own(Call& call, const RotateOp& op) {
  const RotationItem& item = call.kind.rotation.item(op.round);
  const StepRow& row = rows_[item.row];
  const auto me = static_cast<size_t>(shape_.member);
  const int64_t first = call.kind.rotation.rounds[static_cast<size_t>(op.round)].first[me];
  std::byte* block = blocks_[kOwnBuffer].data();
  if (!item.fresh)
    return pack_slots(*config_.stream, call.pages(row), item.first[me] + first, op.slots, block);
  std::vector<int64_t> slots(static_cast<size_t>(op.slots));
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i);
  const int64_t token = row.first + first;
  const KvWriteArgs write{call.inputs.k + token * call.inputs.k_stride,
                          call.inputs.v + token * call.inputs.v_stride,
                          call.inputs.k_stride,
                          call.inputs.v_stride,
                          slots.data(),
                          op.slots,
                          block_pages(call.layout(), op.slots, block)};
  kv_write(*config_.stream, std::span(&write, 1));
}

void DistributedAttention::attend_block(Call& call, const RotateOp& op) {
  const RotationPlan& plan = call.kind.rotation;
  const RotationItem& item = plan.item(op.round);
  const StepRow& row = rows_[item.row];
  if (row.n == 0) return;
  const KvPages kv = block_pages(call.layout(), op.slots, blocks_[op.buffer].data());
  const SlotPositions positions =
      plan.positions[static_cast<size_t>(op.round) * static_cast<size_t>(shape_.members) +
                     static_cast<size_t>(op.origin)]
          .slots();
  std::vector<AttentionRow> attends;
  if (item.fresh || !splits_heads()) {
    attends.push_back(call.own_queries(row));
  } else {
    const int64_t first = context_first_[item.row];
    const int64_t width = int64_t{config_.heads} * call.layout().k_dim;
    for (int32_t d = 0; d < shape_.duplicates; ++d) {
      const float* q = queries_[0].as<float>().data() + (d * context_.tokens + first) * width;
      attends.push_back(call.some_queries(q, row.positions, row.n, aside_.view(d, first)));
      attends.back().accumulate = true;
    }
  }
  for (AttentionRow& a : attends) {
    a.kv = kv;
    a.positions = positions;
    a.slot_end = op.slots;
  }
  attention(*config_.stream, call.params(config_.scale), attends);
}

// Replicated K/V: what passes is kept.
void DistributedAttention::keep_block(Call& call, const RotateOp& op) {
  if (!shape_.replicated || op.origin == shape_.member) return;
  const RotationPlan& plan = call.kind.rotation;
  const SlotPositions positions =
      plan.positions[static_cast<size_t>(op.round) * static_cast<size_t>(shape_.members) +
                     static_cast<size_t>(op.origin)]
          .slots();
  std::vector<int64_t> slots(static_cast<size_t>(op.slots));
  for (int64_t i = 0; i < op.slots; ++i) slots[static_cast<size_t>(i)] = positions.at(i);
  unpack_slots(*config_.stream, blocks_[op.buffer].data(), op.slots, slots.data(),
               call.pages(rows_[plan.item(op.round).row]));
}

// Resident keys that need not move: all of them if replicated; those of this rank's stripe if it has no ring
// and only duplicates share its positions.
void DistributedAttention::attend_still(Call& call) {
  const bool meets = splits_heads() && shape_.members == 1;
  if (!shape_.replicated && !meets) return;
  const auto offsets = shape_.store.offsets(shape_.own_stripe());
  const SlotPositions positions{shape_.store.period(), offsets.data(), static_cast<int32_t>(offsets.size())};
  const int64_t width = int64_t{config_.heads} * call.layout().k_dim;
  std::vector<AttentionRow> attends;
  for (const size_t r : ring_rows_) {
    const StepRow& row = rows_[r];
    if (row.resident == 0) continue;
    const size_t before = attends.size();
    if (shape_.replicated) attends.push_back(call.own_queries(row));
    for (int32_t d = 0; meets && d < shape_.duplicates; ++d) {
      const float* q = queries_[0].as<float>().data() + (d * context_.tokens + context_first_[r]) * width;
      attends.push_back(call.some_queries(q, row.positions, row.n, aside_.view(d, context_first_[r])));
    }
    for (size_t i = before; i < attends.size(); ++i) {
      attends[i].kv = call.pages(row);
      attends[i].positions = positions;
      attends[i].slot_end = shape_.stored(shape_.member, row.resident);
    }
  }
  attention(*config_.stream, call.params(config_.scale), attends);
}

void DistributedAttention::attend_local(Call& call) {
  const auto offsets = shape_.store.offsets(shape_.own_stripe());
  std::vector<AttentionRow> attends;
  for (const size_t r : local_rows_) {
    AttentionRow a = call.own_queries(rows_[r]);
    a.kv = call.pages(rows_[r]);
    a.positions = {shape_.store.period(), offsets.data(), static_cast<int32_t>(offsets.size())};
    a.slot_end = shape_.stored(shape_.member, rows_[r].length);
    attends.push_back(a);
  }
  attention(*config_.stream, call.params(config_.scale), attends);
}

}  // namespace lariat
