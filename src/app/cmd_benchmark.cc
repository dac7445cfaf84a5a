// lariat bench: prefill and decode speed through the step plans that serving uses, one sequence at a time.
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/commands.h"
#include "app/host_info.h"
#include "app/local_ranks.h"
#include "app/progress.h"
#include "base/philox.h"
#include "pages/page_allocator.h"

namespace lariat {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(at, 1, values.size()) - 1];
}

double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

struct BenchOptions {
  std::vector<int32_t> pp;
  std::vector<int32_t> depth{0};
  int32_t tg = 0;
  int32_t repeat = 3;
  int32_t warmup = 1;
  std::string json_out;
};

BenchOptions read_bench_options(const OptionValues& v, Faults& faults) {
  BenchOptions out;
  out.pp = read_int_list(v, "pp", {1, 1 << 24}, faults);
  if (v.find("depth")) out.depth = read_int_list(v, "depth", {0, 1 << 24}, faults);
  out.tg = static_cast<int32_t>(read_int(v, "tg", 0, {0, 1 << 20}, faults));
  out.repeat = static_cast<int32_t>(read_int(v, "repeat", 3, {1, 1000}, faults));
  out.warmup = static_cast<int32_t>(read_int(v, "warmup", 1, {0, 1000}, faults));
  out.json_out = read_text(v, "json-out", "");
  if (out.pp.empty() && out.tg == 0) faults.add("nothing to measure: give --pp N,.. or --tg N or both");
  return out;
}

// One sequence fed through the executor; ids are pseudorandom, so no two positions are alike.
class Sequence {
 public:
  Sequence(LocalRanks& executor, const ResolvedPlan& plan, int32_t chunk, int64_t vocab)
      : executor_(executor), plan_(plan), chunk_(chunk > 0 ? chunk : INT32_MAX), vocab_(vocab) {
    pages_.reserve(static_cast<size_t>(plan.pages_total));
    for (int32_t p = 0; p < plan.pages_total; ++p) pages_.emplace_back(p);
  }

  Status prefill(int32_t n) {
    while (n > 0) {
      const int32_t now = std::min(n, chunk_);
      PlanRow row;
      row.n = now;
      for (int32_t i = 0; i < now; ++i) row.tokens.push_back(token(length_ + i));
      n -= now;
      row.wanted = n == 0 ? LogitsWanted::kLast : LogitsWanted::kNone;
      row.sample = n == 0;
      LARIAT_RETURN_IF_ERROR(step(std::move(row)));
    }
    return Ok{};
  }

  Status decode() {
    PlanRow row;
    row.n = 1;
    row.strategy = Strategy::kGather;
    row.tokens = {token(length_)};
    row.wanted = LogitsWanted::kLast;
    row.sample = true;
    return step(std::move(row));
  }

  void rewind(int32_t length) { length_ = length; }
  int64_t comm_wait_us() const { return comm_wait_us_; }

 private:
  int32_t token(int32_t pos) const {
    return static_cast<int32_t>(philox_uniform(1, static_cast<uint64_t>(pos)) * static_cast<double>(vocab_));
  }

  Status step(PlanRow row) {
    row.id = RowId(1);
    row.pos0 = length_;
    row.pages = {pages_};
    row.sampling.temperature = 0;
    length_ += row.n;
    StepPlan plan;
    plan.step = StepId(++steps_);
    plan.rows.push_back(std::move(row));
    LARIAT_ASSIGN(const StepOutcome outcome, executor_.run(plan, [] { return true; }));
    comm_wait_us_ += outcome.comm_wait_us;
    if (outcome.rows.front().failed)
      return make_error(outcome.rows.front().error, outcome.rows.front().message);
    return Ok{};
  }

  LocalRanks& executor_;
  const ResolvedPlan& plan_;
  const int32_t chunk_;
  const int64_t vocab_;
  std::vector<PageId> pages_;
  int32_t length_ = 0;
  uint64_t steps_ = 0;
  int64_t comm_wait_us_ = 0;
};

struct Measured {
  int32_t pp = 0;
  int32_t tg = 0;
  int32_t depth = 0;
  std::vector<double> total_ms;  // one a repetition
  std::vector<double> itl_ms;    // every decoded token
  double comm_wait_ms = 0;
};

Result<Measured> measure(Sequence& sequence, const BenchOptions& o, int32_t pp, int32_t depth) {
  Measured m;
  m.pp = pp;
  m.tg = pp > 0 ? 0 : o.tg;
  m.depth = depth;
  sequence.rewind(0);
  LARIAT_RETURN_IF_ERROR(sequence.prefill(depth));
  const int64_t wait_before = sequence.comm_wait_us();
  for (int32_t round = 0; round < o.warmup + o.repeat; ++round) {
    sequence.rewind(depth);
    const auto start = Clock::now();
    if (pp > 0) LARIAT_RETURN_IF_ERROR(sequence.prefill(pp));
    for (int32_t i = 0; i < m.tg; ++i) {
      const auto token_start = Clock::now();
      LARIAT_RETURN_IF_ERROR(sequence.decode());
      if (round >= o.warmup) m.itl_ms.push_back(ms_since(token_start));
    }
    if (round >= o.warmup) m.total_ms.push_back(ms_since(start));
  }
  m.comm_wait_ms = static_cast<double>(sequence.comm_wait_us() - wait_before) / 1000.0;
  return m;
}

nlohmann::ordered_json run_json(const Measured& m, const LayoutOptions& layout) {
  constexpr std::string_view kStrategies[] = {"auto", "pass_kv", "pass_q", "gather"};
  nlohmann::ordered_json run;
  run["layout"] = layout_name(layout);
  run["kv"] = layout.kv_mode == KvMode::kStriped ? "striped" : "replicated";
  run["strategy"] = kStrategies[static_cast<size_t>(layout.strategy)];
  run["pp"] = m.pp;
  run["tg"] = m.tg;
  run["depth"] = m.depth;
  const double ms = median(m.total_ms);
  const auto set = [&](const char* key, bool known, double value) {
    if (known) {
      run[key] = value;
    } else {
      run[key] = nullptr;
    }
  };
  set("prefill_tps", m.pp > 0, m.pp / ms * 1000);
  set("decode_tps", m.tg > 0, m.tg / ms * 1000);
  set("ttft_ms", m.pp > 0, ms);
  set("itl_ms_p50", m.tg > 0, quantile(m.itl_ms, 0.5));
  set("itl_ms_p99", m.tg > 0, quantile(m.itl_ms, 0.99));
  run["peak_rss_bytes_per_rank"] = {peak_rss_bytes()};
  run["comm_wait_ms_per_rank"] = {m.comm_wait_ms};
  return run;
}

void print_run(const Measured& m) {
  const double ms = median(m.total_ms);
  if (m.pp > 0) {
    fmt::print("prefill {:>6} tokens at depth {:>6}: {:>9.1f} tok/s\n", m.pp, m.depth, m.pp / ms * 1000);
  } else {
    fmt::print("decode  {:>6} tokens at depth {:>6}: {:>9.1f} tok/s, p50 {:.2f} ms, p99 {:.2f} ms a token\n",
               m.tg, m.depth, m.tg / ms * 1000, quantile(m.itl_ms, 0.5), quantile(m.itl_ms, 0.99));
  }
  std::fflush(stdout);
}

}  // namespace

Result<int> cmd_bench(const OptionValues& values) {
  Faults faults;
  const ModelOptions model_options = read_model_options(values, faults);
  LayoutOptions layout = read_layout_options(values, faults);
  const BenchOptions options = read_bench_options(values, faults);
  if (!faults.empty()) return faults.error();

  LARIAT_ASSIGN(const OpenModel model, open_model(model_options, layout.dtype));
  const int32_t longest = (options.pp.empty() ? 0 : *std::max_element(options.pp.begin(), options.pp.end()));
  const int32_t deepest = *std::max_element(options.depth.begin(), options.depth.end());
  if (layout.context == 0) layout.context = deepest + std::max(longest, options.tg);
  layout.max_batch = 1;
  LARIAT_ASSIGN(const ResolvedPlan plan, resolve_plan(model, layout));
  ProgressBar bar("loading");
  LARIAT_ASSIGN(const auto executor,
                LocalRanks::load(model, layout, plan, {.poison = false, .progress = bar.callback()}));
  bar.finish();

  Sequence sequence(*executor, plan, layout.chunk_tokens, model.files.config.vocab);
  nlohmann::ordered_json out;
  out["runs"] = nlohmann::ordered_json::array();
  for (const int32_t depth : options.depth) {
    std::vector<int32_t> lengths = options.pp;
    if (options.tg > 0) lengths.push_back(0);  // 0: decode
    for (const int32_t pp : lengths) {
      LARIAT_ASSIGN(const Measured m, measure(sequence, options, pp, depth));
      print_run(m);
      out["runs"].push_back(run_json(m, layout));
    }
  }
  out["host"] = host_json(layout.threads);
  if (!options.json_out.empty()) {
    std::ofstream file(options.json_out);
    file << out.dump(2) << "\n";
    if (!file.flush())
      return make_error(Errc::kInvalidArgument, "--json-out: cannot write " + options.json_out);
  }
  return 0;
}

}  // namespace lariat
