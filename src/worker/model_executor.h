// Executes step plans with a real model on this rank: embeds, runs the layers, samples. docs/design.md §5.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "attention/attention.h"
#include "kv/kv_store.h"
#include "model/decoder.h"
#include "worker/step_executor.h"

namespace lariat {

struct ModelExecutorOptions {
  DType kv_type = DType::kF32;
  int32_t interleave = 1;
  int32_t page_tokens = 64;  // a multiple of the placement's period
  int32_t pages_total = 0;
  int32_t pass_tokens = 512;  // tokens of one forward pass at most; a longer step runs as several passes
  bool poison = false;        // all KV starts as NaN
};

// Logits of single positions computed at once when a row wants all of them.
inline constexpr int64_t kLogitRowsMax = 32;

class ModelExecutor : public StepExecutor {
 public:
  // Sees the logits [vocab] of every position that a plan wants logits of, before sampling touches them.
  using LogitsTap = std::function<void(RowId row, TokenPos pos, std::span<const float> logits)>;

  static Result<std::unique_ptr<ModelExecutor>> create(std::shared_ptr<const Decoder> decoder,
                                                       std::unique_ptr<Stream> stream,
                                                       ModelExecutorOptions options);

  Hello hello() const override;
  Result<StepOutcome> run(const StepPlan& plan, const ProgressFn& progress) override;

  void set_logits_tap(LogitsTap tap) { tap_ = std::move(tap); }
  int64_t kv_bytes() const { return kv_->bytes(); }
  int64_t workspace_bytes() const;

 private:
  struct Segment;
  ModelExecutor() = default;

  Status run_pass(const StepPlan& plan, std::span<const Segment> segments, StepOutcome& outcome,
                  const ProgressFn& progress);
  Status finish_logits(const StepPlan& plan, std::span<const Segment> segments, StepOutcome& outcome);
  void judge_position(const PlanRow& row, int32_t index, std::span<float> logits, RowOutcome& outcome) const;
  Result<std::vector<int32_t>> tokens_of(const PlanRow& row) const;

  std::shared_ptr<const Decoder> decoder_;
  std::unique_ptr<Stream> stream_;
  ModelExecutorOptions options_;
  std::optional<KvStore> kv_;
  std::unique_ptr<AttentionBackend> attention_;
  DecoderWorkspace workspace_;
  std::unordered_map<RowId, int32_t> previous_;  // the last token sampled for a row
  LogitsTap tap_;
};

}  // namespace lariat
