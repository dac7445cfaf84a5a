#include "attention/local_attention.h"

#include <fmt/core.h>

namespace lariat {

Status LocalAttention::check_row(const StepRow& row) const {
  if (row.pages.size() != config_.groups.size())
    return make_error(Errc::kInvalidArgument, fmt::format("row has page tables for {} cache groups of {}",
                                                          row.pages.size(), config_.groups.size()));
  for (int64_t i = 0; i < row.n; ++i) {
    const int32_t before = i == 0 ? -1 : row.positions[i - 1];
    if (row.positions[i] <= before || row.positions[i] >= row.length)
      return make_error(Errc::kInvalidArgument, fmt::format("position {} after {} in a sequence of {}",
                                                            row.positions[i], before, row.length));
  }
  const int64_t slots = config_.placement.local_count(config_.stripe, row.length);
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const KvStore& store = *config_.groups[g];
    const int64_t room = static_cast<int64_t>(row.pages[g].size()) * store.config().layout.slots;
    if (slots > room)
      return make_error(Errc::kInvalidArgument,
                        fmt::format("sequence of {} needs {} slots, its {} pages have {}", row.length, slots,
                                    row.pages[g].size(), room));
    LARIAT_RETURN_IF_ERROR(store.check_table(row.pages[g]));
  }
  return Ok{};
}

Status LocalAttention::begin_step(std::span<const StepRow> rows) {
  rows_.clear();
  slots_.clear();
  first_slot_.clear();
  for (const StepRow& row : rows) {
    LARIAT_RETURN_IF_ERROR(check_row(row));
    first_slot_.push_back(static_cast<int64_t>(slots_.size()));
    for (int64_t i = 0; i < row.n; ++i) {
      const TokenPos pos(row.positions[i]);
      const bool ours = config_.placement.owner(pos) == config_.stripe;
      slots_.push_back(ours ? config_.placement.local_slot(pos).get() : -1);
    }
  }
  rows_.assign(rows.begin(), rows.end());
  return Ok{};
}

Status LocalAttention::layer(LayerId layer, const LayerInputs& inputs, float* out) {
  LARIAT_CHECK(layer.get() >= 0 && static_cast<size_t>(layer.get()) < config_.layers.size(), "layer {} of {}",
               layer.get(), config_.layers.size());
  const LayerCache& cache = config_.layers[static_cast<size_t>(layer.get())];
  KvStore& store = *config_.groups[static_cast<size_t>(cache.group)];
  const auto offsets = config_.placement.offsets(config_.stripe);
  const SlotPositions positions{config_.placement.period(), offsets.data(),
                                static_cast<int32_t>(offsets.size())};
  writes_.clear();
  attends_.clear();
  for (size_t r = 0; r < rows_.size(); ++r) {
    const StepRow& row = rows_[r];
    const KvPages kv = store.pages(cache.index, row.pages[static_cast<size_t>(cache.group)]);
    writes_.push_back({inputs.k + row.first * inputs.k_stride, inputs.v + row.first * inputs.v_stride,
                       inputs.k_stride, inputs.v_stride, slots_.data() + first_slot_[r], row.n, kv});
    AttentionRow attend;
    attend.q = inputs.q + row.first * inputs.q_stride;
    attend.q_stride = inputs.q_stride;
    attend.q_pos = row.positions;
    attend.t = row.n;
    attend.kv = kv;
    attend.positions = positions;
    attend.slot_end = config_.placement.local_count(config_.stripe, row.length);
    attend.out.out = out + row.first * config_.heads * kv.layout.v_dim;
    attends_.push_back(attend);
  }
  kv_write(*config_.stream, writes_);
  attention(*config_.stream, {config_.heads, config_.scale, cache.mask}, attends_);
  return Ok{};
}

}  // namespace lariat
