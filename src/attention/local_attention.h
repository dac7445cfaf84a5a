// Attention where this rank holds every key: a stripe group of one.
#pragma once

#include "attention/attention.h"

namespace lariat {

class LocalAttention : public AttentionBackend {
 public:
  // `config` has been checked by create_attention.
  explicit LocalAttention(const AttentionConfig& config) : config_(config) {}

  Status begin_step(std::span<const StepRow> rows) override;
  Status layer(LayerId layer, const LayerInputs& inputs, float* out) override;
  Status share(std::span<const HomeRow>) override { return Ok{}; }

 private:
  Status check_row(const StepRow& row) const;

  AttentionConfig config_;
  std::vector<StepRow> rows_;
  std::vector<int64_t> slots_;       // local slots of the rows' new tokens, row by row; -1: stored elsewhere
  std::vector<int64_t> first_slot_;  // by row: its first entry in slots_
  std::vector<KvWriteArgs> writes_;  // reused from layer to layer
  std::vector<AttentionRow> attends_;
};

}  // namespace lariat
