// lariat bench: prefill and decode speed through the step plans that serving uses, one sequence at a time.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "app/commands.h"
#include "app/host_info.h"
#include "app/process_memory.h"
#include "app/rank_set.h"
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
  if (!out.json_out.empty() && !std::ofstream(out.json_out, std::ios::app))
    faults.add("--json-out: cannot write " + out.json_out);
  if (out.pp.empty() && out.tg == 0) faults.add("nothing to measure: give --pp N,.. or --tg N or both");
  return out;
}

// One sequence fed through the ranks; ids are pseudorandom, so no two positions are alike.
class Sequence {
 public:
  Sequence(RankSet& ranks, const ResolvedPlan& plan, int32_t chunk, int64_t vocab)
      : ranks_(ranks), chunk_(chunk > 0 ? chunk : INT32_MAX), vocab_(vocab) {
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
    LARIAT_ASSIGN(const StepOutcome outcome, ranks_.run(plan, [] { return true; }));
    if (outcome.rows.front().failed)
      return make_error(outcome.rows.front().error, outcome.rows.front().message);
    return Ok{};
  }

  RankSet& ranks_;
  const int32_t chunk_;
  const int64_t vocab_;
  std::vector<PageId> pages_;
  int32_t length_ = 0;
  uint64_t steps_ = 0;
};

struct Measured {
  int32_t pp = 0;
  int32_t tg = 0;
  int32_t depth = 0;
  std::vector<double> total_ms;          // one a repetition
  std::vector<double> itl_ms;            // every decoded token
  std::vector<double> comm_wait_ms;      // by rank, of one repetition (mean)
  std::vector<ProcessMemory> memory;     // by process, after the run
  std::optional<int64_t> weights_bytes;  // in memory files that the processes share
  int64_t positions = 0;                 // resident at the end
};

Result<Measured> measure(RankSet& ranks, Sequence& sequence, const BenchOptions& o, int32_t pp,
                         int32_t depth) {
  Measured m;
  m.pp = pp;
  m.tg = pp > 0 ? 0 : o.tg;
  m.depth = depth;
  sequence.rewind(0);
  LARIAT_RETURN_IF_ERROR(sequence.prefill(depth));
  std::vector<int64_t> wait_before;
  for (int32_t round = 0; round < o.warmup + o.repeat; ++round) {
    if (round == o.warmup) wait_before = ranks.comm_wait_us();
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
  const std::vector<int64_t> wait = ranks.comm_wait_us();
  for (size_t r = 0; r < wait.size(); ++r)
    m.comm_wait_ms.push_back(static_cast<double>(wait[r] - wait_before[r]) / 1000.0 / o.repeat);
  const std::vector<pid_t> pids = ranks.pids();
  for (const pid_t pid : pids) {
    LARIAT_ASSIGN(const ProcessMemory memory, read_process_memory(pid));
    m.memory.push_back(memory);
  }
  m.weights_bytes = shared_weights_bytes(pids);
  m.positions = int64_t{depth} + pp + m.tg;
  return m;
}

// Bytes of the pages that hold the run's positions, by rank: those of the rank's own share.
std::vector<int64_t> kv_bytes_used(const Measured& m, const ResolvedPlan& plan) {
  const int64_t pages = (m.positions + plan.page_tokens - 1) / plan.page_tokens;
  std::vector<int64_t> bytes = plan.page_bytes;
  for (int64_t& b : bytes) b *= pages;
  return bytes;
}

nlohmann::ordered_json run_json(const Measured& m, const LayoutOptions& layout, const ResolvedPlan& plan) {
  constexpr std::string_view kStrategies[] = {"auto", "pass_kv", "pass_q", "gather"};
  nlohmann::ordered_json run;
  run["layout"] = layout_name(layout);
  run["kv"] = layout.kv_mode == KvMode::kStriped ? "striped" : "replicated";
  run["strategy"] = kStrategies[static_cast<size_t>(layout.strategy)];
  run["pp"] = m.pp;
  run["tg"] = m.tg;
  run["depth"] = m.depth;
  const double ms = median(m.total_ms);
  const auto set = [&](const char* key, bool known, auto value) {
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
  for (const ProcessMemory& memory : m.memory) {
    run["peak_rss_bytes_per_rank"].push_back(memory.peak_rss_bytes);
    run["pss_bytes_per_rank"].push_back(memory.pss_bytes);
  }
  run["comm_wait_ms_per_rank"] = m.comm_wait_ms;
  run["kv_bytes_per_rank"] = kv_bytes_used(m, plan);
  set("weights_bytes_shared", m.weights_bytes.has_value(), m.weights_bytes.value_or(0));
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
  Faults faults(values);
  const ModelOptions model_options = read_model_options(values, faults);
  LayoutOptions layout = read_layout_options(values, faults);
  const BenchOptions options = read_bench_options(values, faults);
  const RankTransport transport = read_rank_transport(values, RankTransport::kGloo, faults);
  if (!faults.empty()) return faults.error();

  LARIAT_ASSIGN(const OpenModel model, open_model(model_options, layout.dtype));
  const int32_t longest = (options.pp.empty() ? 0 : *std::max_element(options.pp.begin(), options.pp.end()));
  const int32_t deepest = *std::max_element(options.depth.begin(), options.depth.end());
  if (layout.context == 0) layout.context = deepest + std::max(longest, options.tg);
  layout.max_batch = 1;
  LARIAT_ASSIGN(const ResolvedPlan plan, resolve_plan(model, layout));
  ProgressBar bar("loading");
  const RankSetFactory load =
      rank_sets(transport, {.model = model_options, .poison = false, .progress = &bar});
  LARIAT_ASSIGN(const auto ranks, load(model, layout, plan));
  bar.finish();

  Sequence sequence(*ranks, plan, layout.chunk_tokens, model.files.config.vocab);
  nlohmann::ordered_json out;
  out["runs"] = nlohmann::ordered_json::array();
  for (const int32_t depth : options.depth) {
    std::vector<int32_t> lengths = options.pp;
    if (options.tg > 0) lengths.push_back(0);  // 0: decode
    for (const int32_t pp : lengths) {
      LARIAT_ASSIGN(const Measured m, measure(*ranks, sequence, options, pp, depth));
      print_run(m);
      out["runs"].push_back(run_json(m, layout, plan));
    }
  }
  out["host"] = host_json(layout.threads);
  out["transport"] = transport == RankTransport::kGloo ? "gloo" : "local";
  if (!options.json_out.empty()) {
    std::ofstream file(options.json_out);
    file << out.dump(2) << "\n";
    if (!file.flush())
      return make_error(Errc::kInvalidArgument, "--json-out: cannot write " + options.json_out);
  }
  return 0;
}

}  // namespace lariat
