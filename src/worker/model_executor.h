// Executes step plans with a real model on this rank: embeds, runs the layers, samples. docs/design.md §5.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "attention/attention.h"
#include "kv/kv_store.h"
#include "model/decoder.h"
#include "plan/pass_plan.h"
#include "worker/rank_place.h"
#include "worker/step_agreement.h"
#include "worker/step_executor.h"

namespace lariat {

struct ModelExecutorOptions {
  DType kv_type = DType::kF32;
  int32_t page_tokens = 64;  // a multiple of the placement's period
  int32_t pages_total = 0;
  int32_t pass_tokens = 512;  // tokens this rank computes in one forward pass; a longer step runs as several
  bool poison = false;        // all KV starts as NaN
  uint64_t weights_hash[2] = {0, 0};  // of the model's files, for the hello
};

// Logits of single positions computed at once when a row wants all of them.
inline constexpr int64_t kLogitRowsMax = 32;

// One rank of a group, or the whole group. Every rank runs the same plans; docs/design.md §4 says which of a
// row's tokens a rank computes. The token of a row is drawn on one rank (t = 0 of the position's compute
// owner) and known to all when run() returns; log-probabilities and logits are in the outcome of the rank
// that judged the position.
class ModelExecutor : public StepExecutor {
 public:
  // `decoder` holds this rank's shard and, with tp > 1, its tp group.
  static Result<std::unique_ptr<ModelExecutor>> create(std::shared_ptr<const Decoder> decoder,
                                                       std::unique_ptr<Stream> stream, RankPlace place,
                                                       ModelExecutorOptions options);

  Hello hello() const override;
  PlanLimits limits() const override;
  Result<StepOutcome> run(const StepPlan& plan, const ProgressFn& progress) override;
  Status health() override { return place_.groups ? place_.groups->world->health() : Ok{}; }

  const RankPlace& place() const { return place_; }

 private:
  // A position of a pass that the plan wants logits of and this rank's tp group computes.
  struct Wanted {
    size_t row = 0;
    int32_t index = 0;    // among the row's new tokens
    int64_t in_pass = 0;  // among the tokens this rank computes
  };
  using Tokens = std::vector<std::vector<int32_t>>;  // by row

  Result<StepOutcome> run_step(const StepPlan& plan, const ProgressFn& progress);

  explicit ModelExecutor(RankPlace place)
      : place_(std::move(place)),
        agreement_(place_.groups ? place_.groups->world.get() : nullptr, place_.comm_timeout) {}

  Result<Tokens> tokens_of(const StepPlan& plan) const;
  // What this rank computes of a pass.
  struct LocalPass {
    std::vector<int32_t> ids;
    std::vector<int32_t> positions;
  };
  Status run_pass(const StepPlan& plan, const Pass& pass, const Result<Tokens>& tokens, StepOutcome& outcome,
                  const ProgressFn& progress);
  Status prepare(const StepPlan& plan, const Pass& pass, const Tokens& tokens, LocalPass& local);
  std::vector<Wanted> wanted_of(const StepPlan& plan, const Pass& pass) const;
  Status judge_all(const StepPlan& plan, std::span<const Wanted> wanted, StepOutcome& outcome);
  void judge_block(const StepPlan& plan, std::span<const Wanted> block, StepOutcome& outcome);
  Status share_tokens(const StepPlan& plan, StepOutcome& outcome);
  int64_t wait_us() const { return place_.groups ? place_.groups->counters().wait_us : 0; }

  RankPlace place_;
  std::optional<ComputePlacement> compute_;  // of place_
  StepAgreement agreement_;
  bool apart_ =
      false;  // exchanges have begun that a rank which gives up alone would leave its peers waiting in
  ModelExecutorOptions options_;
  std::shared_ptr<const Decoder> decoder_;
  std::unique_ptr<Stream> stream_;
  std::optional<KvStore> kv_;
  std::unique_ptr<AttentionBackend> attention_;
  DecoderWorkspace workspace_;
  std::unordered_map<RowId, int32_t> previous_;  // the last token drawn for a row, on any rank
};

}  // namespace lariat
