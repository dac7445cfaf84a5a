#include "app/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "app/local_ranks.h"
#include "pages/page_allocator.h"
#include "weights/safetensors.h"

namespace lariat {
namespace {

constexpr int32_t kDecodedInputs = 32;  // the last inputs are fed one a step

struct Golden {
  std::vector<int32_t> input_ids;
  std::vector<float> logits;  // [T, vocab]
  std::vector<int32_t> greedy;
};

Result<std::vector<int32_t>> int_tensor(const SafetensorsFile& file, std::string_view name) {
  const auto view = file.find(name);
  if (!view || view->dtype != DType::kI32 || view->shape.rank() != 1) {
    return make_error(Errc::kCorruptData, fmt::format("the golden file has no i32 vector '{}'", name));
  }
  const auto* data = static_cast<const int32_t*>(view->data);
  return std::vector<int32_t>(data, data + view->shape[0]);
}

Result<Golden> read_golden(const std::filesystem::path& path, int64_t vocab) {
  LARIAT_ASSIGN(auto mapped, MappedFile::open(path));
  LARIAT_ASSIGN(const auto file, SafetensorsFile::create(std::move(mapped)));
  Golden golden;
  LARIAT_ASSIGN(golden.input_ids, int_tensor(file, "input_ids"));
  LARIAT_ASSIGN(golden.greedy, int_tensor(file, "greedy"));
  const auto logits = file.find("logits");
  const auto t = static_cast<int64_t>(golden.input_ids.size());
  if (!logits || logits->dtype != DType::kF32 || !(logits->shape == Shape{t, vocab})) {
    return make_error(Errc::kCorruptData,
                      fmt::format("{}: 'logits' is not f32 {}", path.string(), Shape{t, vocab}.str()));
  }
  if (t < 2) return make_error(Errc::kCorruptData, path.string() + ": fewer than two input ids");
  for (const std::vector<int32_t>* ids : {&golden.input_ids, &golden.greedy}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= vocab) {
        return make_error(Errc::kCorruptData, fmt::format("{}: token {} is outside the vocabulary of {}",
                                                          path.string(), id, vocab));
      }
    }
  }
  const auto* data = static_cast<const float*>(logits->data);
  golden.logits.assign(data, data + t * vocab);
  return golden;
}

// Feeds two rows of one sequence through step plans: row 1 is prefilled whole, row 2 prefilled and then
// decoded.
class Verifier {
 public:
  Verifier(LocalRanks& executor, const Golden& golden, const ResolvedPlan& plan, int32_t chunk,
           PageAllocator pages)
      : executor_(executor), golden_(golden), plan_(plan), chunk_(chunk), pages_(std::move(pages)) {
    executor_.set_logits_tap(
        [this](RowId, TokenPos pos, std::span<const float> logits) { compare(pos, logits); });
  }

  Status run() {
    const auto t = static_cast<int32_t>(golden_.input_ids.size());
    const int32_t decoded = std::min(kDecodedInputs, t - 1);
    // The rows' chunks alternate, so their pages interleave and a wrong table shows.
    int32_t whole = 0;
    int32_t prefix = 0;
    while (whole < t || prefix < t - decoded) {
      if (whole < t) LARIAT_RETURN_IF_ERROR(prefill(rows_[0], whole, t));
      if (prefix < t - decoded) LARIAT_RETURN_IF_ERROR(prefill(rows_[1], prefix, t - decoded));
    }
    int32_t next = -1;
    for (int32_t pos = t - decoded; pos < t; ++pos) {
      LARIAT_ASSIGN(next, decode(rows_[1], pos, golden_.input_ids[static_cast<size_t>(pos)]));
    }
    for (size_t i = 0; i < golden_.greedy.size(); ++i) {
      if (next != golden_.greedy[i]) {
        mismatch_ = fmt::format("greedy token {} is {}, the reference says {}", i, next, golden_.greedy[i]);
        return Ok{};
      }
      if (i + 1 == golden_.greedy.size()) break;
      LARIAT_ASSIGN(next, decode(rows_[1], t + static_cast<int32_t>(i), next));
    }
    return Ok{};
  }

  double max_error() const { return max_error_; }
  const std::string& mismatch() const { return mismatch_; }
  int64_t compared() const { return compared_; }

 private:
  struct Row {
    RowId id;
    std::vector<PageId> pages;
  };

  Status grow(Row& row, int32_t tokens) {
    const int64_t need =
        (tokens + plan_.page_tokens - 1) / plan_.page_tokens - static_cast<int64_t>(row.pages.size());
    if (need > 0 && !pages_.take(need, row.pages)) {
      return make_error(
          Errc::kResourceExhausted,
          fmt::format("verify needs {} more KV pages than the {} there are", need, pages_.total()));
    }
    return Ok{};
  }

  Result<int32_t> step(Row& row, PlanRow plan_row) {
    LARIAT_RETURN_IF_ERROR(grow(row, plan_row.pos0 + plan_row.n));
    plan_row.id = row.id;
    plan_row.pages = {row.pages};
    StepPlan plan;
    plan.step = StepId(++steps_);
    plan.rows.push_back(std::move(plan_row));
    LARIAT_ASSIGN(const StepOutcome outcome, executor_.run(plan, [] { return true; }));
    const RowOutcome& r = outcome.rows.front();
    if (r.failed) return make_error(r.error, r.message);
    return r.token;
  }

  Status prefill(Row& row, int32_t& done, int32_t end) {
    const int32_t n = chunk_ > 0 ? std::min(chunk_, end - done) : end - done;
    PlanRow plan_row;
    plan_row.pos0 = done;
    plan_row.n = n;
    plan_row.tokens.assign(golden_.input_ids.begin() + done, golden_.input_ids.begin() + done + n);
    plan_row.wanted = LogitsWanted::kAll;
    LARIAT_RETURN_IF_ERROR(step(row, std::move(plan_row)));
    done += n;
    return Ok{};
  }

  Result<int32_t> decode(Row& row, int32_t pos, int32_t token) {
    PlanRow plan_row;
    plan_row.pos0 = pos;
    plan_row.n = 1;
    plan_row.strategy = Strategy::kGather;
    plan_row.tokens = {token};
    plan_row.wanted = LogitsWanted::kLast;
    plan_row.sample = true;
    plan_row.sampling.temperature = 0;
    return step(row, std::move(plan_row));
  }

  void compare(TokenPos pos, std::span<const float> logits) {
    if (pos.get() >= static_cast<int32_t>(golden_.input_ids.size())) return;  // greedy continuation
    const float* want = golden_.logits.data() + static_cast<size_t>(pos.get()) * logits.size();
    for (size_t i = 0; i < logits.size(); ++i) {
      const double error = std::abs(double{logits[i]} - want[i]);
      if (!(error <= max_error_)) max_error_ = std::isnan(error) ? INFINITY : error;
    }
    ++compared_;
  }

  LocalRanks& executor_;
  const Golden& golden_;
  const ResolvedPlan& plan_;
  const int32_t chunk_;
  PageAllocator pages_;
  Row rows_[2] = {{RowId(1), {}}, {RowId(2), {}}};
  uint64_t steps_ = 0;
  double max_error_ = 0;
  int64_t compared_ = 0;
  std::string mismatch_;
};

}  // namespace

Result<VerifyReport> verify_model(const OpenModel& model, LayoutOptions layout,
                                  const std::filesystem::path& golden_path, const ExecutorExtras& extras) {
  LARIAT_ASSIGN(const Golden golden, read_golden(golden_path, model.files.config.vocab));
  // Two rows of the sequence and its continuation, and no more: poison beyond them costs nothing.
  const auto tokens = static_cast<int32_t>(golden.input_ids.size() + golden.greedy.size());
  if (layout.context == 0) layout.context = tokens;
  layout.max_batch = 2;
  LARIAT_ASSIGN(const ResolvedPlan plan, resolve_plan(model, layout));
  LARIAT_ASSIGN(auto pages, PageAllocator::create(plan.pages_total));
  LARIAT_ASSIGN(const auto executor, LocalRanks::load(model, layout, plan, extras));
  Verifier verifier(*executor, golden, plan, layout.chunk_tokens, std::move(pages));
  LARIAT_RETURN_IF_ERROR(verifier.run());
  VerifyReport report;
  report.max_error = verifier.max_error();
  report.mismatch = verifier.mismatch();
  report.greedy_match = report.mismatch.empty();
  report.tokens = tokens;
  report.positions = verifier.compared();
  return report;
}

}  // namespace lariat
