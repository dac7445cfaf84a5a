// Decode, and what home ranks decoded alone: exchanges in which every member has the queries or needs the
// keys.
#include <algorithm>

#include "attention/distributed_call.h"

namespace lariat {

// Every member has the queries; each attends its stripe, and all merge all in ascending stripe order. Moves
// (C - 1) partials of a rank's heads, and where R duplicates share a KV head R - 1 queries and partials more.
Status DistributedAttention::gather(Call& call) {
  const int v_dim = call.layout().v_dim;
  const int32_t blocks = shape_.duplicates;
  PartialSet* mine = &aside_;
  PartialSet* all = &received_;
  if (blocks == 1) {
    attend_gathered(call);
  } else {
    LARIAT_RETURN_IF_ERROR(gather_queries(call, gather_));
    attend_gathered_heads(call);
    LARIAT_RETURN_IF_ERROR(merge_duplicates(call, gather_.tokens, running_[0]));
    std::swap(mine, all);
    for (int32_t d = 1; d < blocks; ++d)
      merge_tokens(*config_.stream, mine->view(0), mine->view(d), gather_.tokens, config_.heads, v_dim);
  }
  if (shape_.members > 1) {
    all->shape(shape_.members, gather_.tokens, config_.heads, v_dim);
    const size_t bytes = all->block_bytes();
    const Device device = config_.stream->device();
    LARIAT_RETURN_IF_ERROR(finish(config_.comm.ring->all_gather(
        {mine->data(), bytes, device}, {all->data(), bytes * static_cast<size_t>(shape_.members), device})));
    mine = all;
  }
  for (int32_t m = 0; m < shape_.members; ++m)
    for (size_t i = 0; i < gather_.rows.size(); ++i) {
      const StepRow& row = rows_[gather_.rows[i]];
      merge_tokens(*config_.stream, call.running(row), mine->view(m, gather_.first[i]), row.n, config_.heads,
                   v_dim);
    }
  return Ok{};
}

// aside_ [1][tokens] = own heads over own stripe.
void DistributedAttention::attend_gathered(Call& call) {
  const auto offsets = shape_.store.offsets(shape_.own_stripe());
  aside_.shape(1, gather_.tokens, config_.heads, call.layout().v_dim);
  std::vector<AttentionRow> attends;
  for (size_t i = 0; i < gather_.rows.size(); ++i) {
    const StepRow& row = rows_[gather_.rows[i]];
    AttentionRow a = call.own_queries(row);
    a.accumulate = false;
    a.out = aside_.view(0, gather_.first[i]);
    a.kv = call.pages(row);
    a.positions = {shape_.store.period(), offsets.data(), static_cast<int32_t>(offsets.size())};
    a.slot_end = shape_.stored(shape_.member, row.length);
    attends.push_back(a);
  }
  attention(*config_.stream, call.params(config_.scale), attends);
}

// running_[0] [R][tokens] = all duplicates' heads over own stripe. Attended as one row of R * heads, so that
// the keys, which are most of a decode step's memory traffic, are read once and not R times.
void DistributedAttention::attend_gathered_heads(Call& call) {
  const int32_t blocks = shape_.duplicates;
  const int heads = config_.heads;
  const int v_dim = call.layout().v_dim;
  const int64_t width = int64_t{heads} * call.layout().k_dim;
  const float* by_duplicate = queries_[0].as<float>().data();
  float* by_token = queries_[1].as<float>().data();
  for (int64_t t = 0; t < gather_.tokens; ++t)
    for (int32_t d = 0; d < blocks; ++d)
      std::copy_n(by_duplicate + (d * gather_.tokens + t) * width, width,
                  by_token + (t * blocks + d) * width);

  const auto offsets = shape_.store.offsets(shape_.own_stripe());
  aside_.shape(1, gather_.tokens, blocks * heads, v_dim);
  std::vector<AttentionRow> attends;
  for (size_t i = 0; i < gather_.rows.size(); ++i) {
    const StepRow& row = rows_[gather_.rows[i]];
    AttentionRow a = call.some_queries(by_token + gather_.first[i] * blocks * width, row.positions, row.n,
                                       aside_.view(0, gather_.first[i]));
    a.kv = call.pages(row);
    a.positions = {shape_.store.period(), offsets.data(), static_cast<int32_t>(offsets.size())};
    a.slot_end = shape_.stored(shape_.member, row.length);
    attends.push_back(a);
  }
  AttentionParams params = call.params(config_.scale);
  params.heads = blocks * heads;
  attention(*config_.stream, params, attends);

  running_[0].shape(blocks, gather_.tokens, heads, v_dim);
  const PartialView all = aside_.view(0);
  for (int32_t d = 0; d < blocks; ++d) {
    const PartialView to = running_[0].view(d);
    for (int64_t t = 0; t < gather_.tokens; ++t) {
      const int64_t from = (t * blocks + d) * heads;
      std::copy_n(all.out + from * v_dim, heads * v_dim, to.out + t * heads * v_dim);
      std::copy_n(all.lse + from, heads, to.lse + t * heads);
    }
  }
}

Status DistributedAttention::share(std::span<const HomeRow> rows) {
  if (!shape_.replicated || shape_.members == 1) return Ok{};
  for (const HomeRow& row : rows) {
    LARIAT_CHECK(row.home >= 0 && row.home < shape_.members && row.pages.size() == config_.groups.size(),
                 "home {} of {}, {} page tables", row.home, shape_.members, row.pages.size());
    for (int64_t at = row.begin; at < row.end; at += block_)
      LARIAT_RETURN_IF_ERROR(fail(share_slots(row, at, std::min(block_, row.end - at))));
  }
  return Ok{};
}

// One broadcast: the slots of all layers, one layer's block behind the other.
Status DistributedAttention::share_slots(const HomeRow& row, int64_t begin, int64_t n) {
  size_t bytes = 0;
  for (const LayerCache& layer : config_.layers)
    bytes += static_cast<size_t>(
        block_bytes(config_.groups[static_cast<size_t>(layer.group)]->config().layout)(n));
  LARIAT_ASSIGN(Buffer buffer, Buffer::allocate(bytes));
  std::vector<int64_t> slots(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) slots[static_cast<size_t>(i)] = begin + i;
  const auto each_layer = [&](const auto& move) {
    std::byte* block = buffer.data();
    for (const LayerCache& layer : config_.layers) {
      const auto group = static_cast<size_t>(layer.group);
      const KvPages pages = config_.groups[group]->pages(layer.index, row.pages[group]);
      move(pages, block);
      block += block_bytes(pages.layout)(n);
    }
  };
  const bool home = row.home == shape_.member;
  if (home)
    each_layer(
        [&](const KvPages& pages, std::byte* block) { pack_slots(*config_.stream, pages, begin, n, block); });
  LARIAT_RETURN_IF_ERROR(
      finish(config_.comm.ring->broadcast(buffer.data(), bytes, row.home, config_.stream->device())));
  if (!home)
    each_layer([&](const KvPages& pages, std::byte* block) {
      unpack_slots(*config_.stream, block, n, slots.data(), pages);
    });
  return Ok{};
}

}  // namespace lariat
