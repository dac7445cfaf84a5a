// Attention where the keys of a row are striped over ranks. docs/design.md §2 to §4.
#pragma once

#include <vector>

#include "attention/attention.h"
#include "attention/kv_rotation_plan.h"
#include "attention/partial_set.h"
#include "attention/stripe_shape.h"
#include "ring/query_rotation.h"

namespace lariat {

// begin_step() derives everything that moves and takes the memory for it; it talks to nobody, so a rank that
// lacks memory says so before any peer waits for it. layer() then runs the exchanges in the order every rank
// derived: pass_q rows, what rotates of K/V, gather rows.
class DistributedAttention : public AttentionBackend {
 public:
  // `config` has been checked by create_attention.
  DistributedAttention(const AttentionConfig& config, StripeShape shape);

  Status begin_step(std::span<const StepRow> rows) override;
  Status layer(LayerId layer, const LayerInputs& inputs, float* out) override;
  Status share(std::span<const HomeRow> rows) override;
  int64_t workspace_bytes() const override;

 private:
  // Layers with the same store and mask move the same.
  struct LayerClass {
    int group = 0;
    Mask mask;
    RotationPlan rotation;
  };
  struct QueryRow {  // a pass_q row
    size_t row = 0;
    std::vector<int64_t> tokens;                  // by member
    std::vector<std::vector<int32_t>> positions;  // by member
    std::vector<QueryOp> ops;
  };
  // Rows whose queries meet the duplicates' stripes in one exchange, tokens side by side.
  struct Meeting {
    std::vector<size_t> rows;
    std::vector<int64_t> first;  // by row: its first token in the exchange
    int64_t tokens = 0;
  };
  struct Call;  // one layer() call

  Status check_row(const StepRow& row) const;
  Status check_new_tokens(const StepRow& row) const;
  void sort_rows();
  void plan_classes();
  void plan_query_row(size_t row);
  Status take_memory();
  bool splits_heads() const { return shape_.duplicates > 1 && !shape_.replicated; }

  void store_new(Call& call);
  Status run(Call& call);
  Status gather_queries(Call& call, const Meeting& meeting);
  Status merge_duplicates(Call& call, int64_t tokens, PartialSet& from);
  Status rotate(Call& call);
  void load_own(Call& call, const RotateOp& op);
  void attend_block(Call& call, const RotateOp& op);
  void keep_block(Call& call, const RotateOp& op);
  void attend_still(Call& call);
  void attend_local(Call& call);
  Status pass_q(Call& call, const QueryRow& row);
  Status rotate_row_queries(Call& call, const QueryRow& row, int32_t blocks);
  void attend_queries(Call& call, const QueryRow& row, const QueryOp& op, int32_t blocks);
  Status gather(Call& call);
  void attend_gathered(Call& call);
  void attend_gathered_heads(Call& call);
  Status share_slots(const HomeRow& row, int64_t begin, int64_t n);
  Status fail(Status status);
  Status finish(PendingPtr pending);

  AttentionConfig config_;
  StripeShape shape_;
  int64_t block_;  // slots of a sub-block at most
  int k_dim_max_ = 0;
  int v_dim_max_ = 0;

  std::vector<LayerClass> classes_;
  std::vector<size_t> class_of_layer_;

  std::vector<StepRow> rows_;
  std::vector<int64_t> slots_;       // of the rows' new tokens in the store; -1: not stored here
  std::vector<int64_t> first_slot_;  // by row: its first entry in slots_
  std::vector<QueryRow> query_rows_;
  std::vector<size_t> ring_rows_;  // pass_kv
  std::vector<size_t> local_rows_;
  Meeting context_;  // of pass_kv rows with resident tokens, where duplicates split them
  Meeting gather_;
  std::vector<int64_t> context_first_;  // by row: its first token in context_, or -1
  int64_t tokens_ = 0;                  // of the step's arrays

  // Grown by begin_step.
  Buffer lse_;                   // [tokens_, heads] of the running result
  Buffer blocks_[kRingBuffers];  // K/V sub-blocks
  Buffer queries_[3];            // [R][tokens, heads, k_dim]
  Buffer own_queries_;           // [tokens, heads, k_dim]
  PartialSet running_[2];        // pass_q
  PartialSet aside_;             // pass_q: computed for another's queries; else what was attended for all
  PartialSet received_;          // from all_to_all or all_gather
};

}  // namespace lariat
