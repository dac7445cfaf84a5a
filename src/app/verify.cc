#include "app/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "pages/page_allocator.h"
#include "weights/safetensors.h"

namespace lariat {
namespace {

constexpr int32_t kDecodedInputs = 32;  // the last inputs are fed one a step

struct Golden {
  std::vector<int32_t> input_ids;
  std::vector<float> logits;  // [T, vocab]
  std::vector<int32_t> greedy;
  int64_t vocab = 0;
  int64_t row_bytes() const { return vocab * static_cast<int64_t>(sizeof(float)); }
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
  golden.vocab = vocab;
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
  struct Limits {
    int32_t page_tokens = 0;
    int32_t chunk_tokens = 0;  // 0: the whole prompt
    int64_t logits_bytes = 0;  // sent back by one step
  };
  Verifier(RankSet& ranks, const Golden& golden, const Limits& limits, PageAllocator pages)
      : ranks_(ranks), golden_(golden), limits_(limits), pages_(std::move(pages)) {}

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
        (tokens + limits_.page_tokens - 1) / limits_.page_tokens - static_cast<int64_t>(row.pages.size());
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
    const PlanRow& asked = plan.rows.front();
    LARIAT_ASSIGN(const StepOutcome outcome, ranks_.run(plan, [] { return true; }));
    const RowOutcome& r = outcome.rows.front();
    if (r.failed) return make_error(r.error, r.message);
    if (r.logits.size() != static_cast<size_t>(asked.logits_count))
      return make_error(Errc::kInternal, fmt::format("step {} sent the logits of {} positions of {}", steps_,
                                                     r.logits.size(), asked.logits_count));
    for (size_t i = 0; i < r.logits.size(); ++i) {
      const int32_t pos = asked.pos0 + asked.logits_first + static_cast<int32_t>(i);
      LARIAT_RETURN_IF_ERROR(compare(pos, r.logits[i]));
    }
    return r.token;
  }

  Status prefill(Row& row, int32_t& done, int32_t end) {
    const int32_t left = end - done;
    const int32_t n = limits_.chunk_tokens > 0 ? std::min(limits_.chunk_tokens, left) : left;
    PlanRow plan_row;
    plan_row.pos0 = done;
    plan_row.n = n;
    plan_row.tokens.assign(golden_.input_ids.begin() + done, golden_.input_ids.begin() + done + n);
    plan_row.wanted = LogitsWanted::kAll;
    // Running a chunk again writes the same K and V to the same places.
    const auto part = static_cast<int32_t>(std::max<int64_t>(1, limits_.logits_bytes / golden_.row_bytes()));
    for (int32_t first = 0; first < n; first += part) {
      plan_row.logits_first = first;
      plan_row.logits_count = std::min(part, n - first);
      LARIAT_RETURN_IF_ERROR(step(row, plan_row));
    }
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
    // What follows the inputs has no reference logits.
    plan_row.logits_count = pos < static_cast<int32_t>(golden_.input_ids.size()) ? 1 : 0;
    return step(row, std::move(plan_row));
  }

  Status compare(int32_t pos, const PositionLogits& got) {
    const auto vocab = static_cast<size_t>(golden_.vocab);
    if (got.pos != pos || got.values.size() != vocab)
      return make_error(Errc::kInternal,
                        fmt::format("{} logits of position {} came for the {} of position {}",
                                    got.values.size(), got.pos, vocab, pos));
    const float* want = golden_.logits.data() + static_cast<size_t>(pos) * vocab;
    for (size_t i = 0; i < vocab; ++i) {
      const double error = std::abs(double{got.values[i]} - want[i]);
      if (!(error <= max_error_)) max_error_ = std::isnan(error) ? INFINITY : error;
    }
    ++compared_;
    return Ok{};
  }

  RankSet& ranks_;
  const Golden& golden_;
  const Limits limits_;
  PageAllocator pages_;
  Row rows_[2] = {{RowId(1), {}}, {RowId(2), {}}};
  uint64_t steps_ = 0;
  double max_error_ = 0;
  int64_t compared_ = 0;
  std::string mismatch_;
};

}  // namespace

Result<VerifyReport> verify_model(const OpenModel& model, LayoutOptions layout,
                                  const std::filesystem::path& golden_path, const RankSetFactory& load,
                                  int64_t logits_bytes_max) {
  LARIAT_ASSIGN(const Golden golden, read_golden(golden_path, model.files.config.vocab));
  // Two rows of the sequence and its continuation, and no more: poison beyond them costs nothing.
  const auto tokens = static_cast<int32_t>(golden.input_ids.size() + golden.greedy.size());
  if (layout.context == 0) layout.context = tokens;
  layout.max_batch = 2;
  LARIAT_ASSIGN(const ResolvedPlan plan, resolve_plan(model, layout));
  LARIAT_ASSIGN(auto pages, PageAllocator::create(plan.pages_total));
  LARIAT_ASSIGN(const auto ranks, load(model, layout, plan));
  Verifier verifier(*ranks, golden,
                    {.page_tokens = plan.page_tokens,
                     .chunk_tokens = layout.chunk_tokens,
                     .logits_bytes = logits_bytes_max},
                    std::move(pages));
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
