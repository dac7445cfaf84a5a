// Attention beside two probes in the same run: the multiply-add peak (prefill) and the read bandwidth
// (decode) of as many threads. `share` is the fraction of the probe that the kernel reaches.
//   ops_attention_bench --benchmark_filter=Prefill
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "ops/attention.h"
#include "ops/attention_testing.h"
#include "ops/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention_bench.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/simd_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

// 12 independent chains hide the latency of the adder everywhere. Returns the flops done.
double fma_loop(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  const F32Tag d;
  F32Vec acc[kChains];
  LARIAT_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = hn::Set(d, 1.0f + static_cast<float>(i));
  const auto a = hn::Set(d, 0.999f);
  const auto b = hn::Set(d, 0.001f);
  for (int64_t r = 0; r < rounds; ++r) {
    LARIAT_UNROLL
    for (F32Vec& v : acc) v = hn::MulAdd(v, a, b);
  }
  auto sum = hn::Zero(d);
  LARIAT_UNROLL
  for (const F32Vec& v : acc) sum = hn::Add(sum, v);
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return 2.0 * kChains * static_cast<double>(kLanes) * static_cast<double>(rounds);
}

float read_loop(const float* p, int64_t n) {
  const F32Tag d;
  F32Vec acc[8];
  LARIAT_UNROLL
  for (F32Vec& v : acc) v = hn::Zero(d);
  const int64_t lanes = static_cast<int64_t>(kLanes);
  for (int64_t at = 0; at + 8 * lanes <= n; at += 8 * lanes) {
    LARIAT_UNROLL
    for (int i = 0; i < 8; ++i) acc[i] = hn::Max(acc[i], hn::LoadU(d, p + at + i * lanes));
  }
  auto top = acc[0];
  LARIAT_UNROLL
  for (int i = 1; i < 8; ++i) top = hn::Max(top, acc[i]);
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
namespace cpu {
HWY_EXPORT(fma_loop);
HWY_EXPORT(read_loop);
double fma_flops(int64_t rounds, float* sink) {
  return HWY_DYNAMIC_DISPATCH(fma_loop)(rounds, sink);
}
float read_all(const float* p, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(read_loop)(p, n);
}
}  // namespace cpu

namespace {

using Clock = std::chrono::steady_clock;

// Wall seconds, and processor seconds of all threads: the latter do not count what other processes took.
struct Cost {
  double wall = 0;
  double cpu = 0;
};
Cost best_of(const Cost& a, const Cost& b) {
  return {std::min(a.wall, b.wall), std::min(a.cpu, b.cpu)};
}

double cpu_now() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class F>
Cost cost_of(F&& f) {
  const auto start = Clock::now();
  const double cpu = cpu_now();
  f();
  return {std::chrono::duration<double>(Clock::now() - start).count(), cpu_now() - cpu};
}

constexpr int64_t kRounds = 1000000;  // some milliseconds of the probe

// Cost of a gigaflop of multiply-adds on all threads.
Cost fma_probe(Stream& stream) {
  double flops = 0;
  std::vector<float> sinks(static_cast<size_t>(stream.threads()));
  const Cost cost = cost_of([&] {
    stream.pool().parallel_for(stream.threads(), [&](int64_t i, int) {
      const double done = cpu::fma_flops(kRounds, &sinks[static_cast<size_t>(i)]);
      if (i == 0) flops = done * stream.threads();
    });
  });
  benchmark::DoNotOptimize(sinks.data());
  return {cost.wall / flops * 1e9, cost.cpu / flops * 1e9};
}

struct Bench {
  DType dtype;
  int heads, kv_heads, dim;
  int64_t keys, t;
  int page;
  int threads;
};

Bench bench_of(const benchmark::State& state) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  return {kTypes[state.range(0)],
          static_cast<int>(state.range(1)),
          static_cast<int>(state.range(2)),
          static_cast<int>(state.range(3)),
          state.range(4),
          state.range(5),
          static_cast<int>(state.range(6)),
          static_cast<int>(state.range(7))};
}

// `work` giga-units at `best`, beside a probe that costs `probe` a giga-unit.
void report(benchmark::State& state, const char* unit, const Cost& best, const Cost& probe, double work) {
  state.counters[unit] = work / best.wall;
  state.counters["probe"] = 1 / probe.wall;
  state.counters["share"] = work * probe.wall / best.wall;
  state.counters["share_cpu"] = work * probe.cpu / best.cpu;
}

void prefill(benchmark::State& state) {
  const Bench b = bench_of(state);
  std::mt19937 rng(1);
  const auto stream = Stream::cpu(b.threads);
  kvtest::PagedKv kv({b.dtype, b.kv_heads, b.dim, b.dim, b.page}, b.keys, rng);
  kv.write_random(*stream, rng);
  const auto q = kvtest::random_floats(rng, b.t * b.heads * b.dim);
  const auto q_pos = kvtest::positions_from(static_cast<int32_t>(b.keys - b.t), b.t);
  kvtest::OwnedPartial out(b.t, b.heads, b.dim);
  const AttentionRow row{q.data(), q_pos.data(), b.t, kv.pages(), {}, 0, b.keys, out.view()};
  const AttentionParams params{b.heads, 1.0f / std::sqrt(static_cast<float>(b.dim)), {}};
  const double pairs =
      static_cast<double>(b.t) * (static_cast<double>(b.keys - b.t) + static_cast<double>(b.t + 1) / 2);
  const double flops = pairs * b.heads * b.dim * 4;
  Cost probe{1e30, 1e30};
  Cost best{1e30, 1e30};
  for ([[maybe_unused]] auto _ : state) {
    const Cost cost = cost_of([&] { attention(*stream, params, std::span(&row, 1)); });
    state.SetIterationTime(cost.wall);
    best = best_of(best, cost);
    probe = best_of(probe, fma_probe(*stream));
  }
  report(state, "gflop/s", best, probe, flops * 1e-9);
}

// Layers' pools one after another, as a decode step does, so that the caches do not hold the next one.
void decode(benchmark::State& state) {
  const Bench b = bench_of(state);
  constexpr size_t kPoolBytes = size_t{512} << 20;
  std::mt19937 rng(1);
  const auto stream = Stream::cpu(b.threads);
  const int64_t bytes = b.keys * b.kv_heads * b.dim * 2 * static_cast<int64_t>(dtype_size(b.dtype));
  std::vector<std::unique_ptr<kvtest::PagedKv>> layers;
  for (size_t held = 0; held < kPoolBytes; held += static_cast<size_t>(bytes)) {
    layers.push_back(std::make_unique<kvtest::PagedKv>(KvLayout{b.dtype, b.kv_heads, b.dim, b.dim, b.page},
                                                       b.keys, rng, 0.5f));
  }
  auto memory = Buffer::allocate(kPoolBytes);
  std::fill_n(memory->as<float>().data(), kPoolBytes / 4, 1.0f);
  const auto q = kvtest::random_floats(rng, b.t * b.heads * b.dim);
  const auto q_pos = kvtest::positions_from(static_cast<int32_t>(b.keys - b.t), b.t);
  kvtest::OwnedPartial out(b.t, b.heads, b.dim);
  const AttentionParams params{b.heads, 1.0f / std::sqrt(static_cast<float>(b.dim)), {}};
  Cost probe{1e30, 1e30};
  Cost best{1e30, 1e30};
  for ([[maybe_unused]] auto _ : state) {
    const Cost cost = cost_of([&] {
      for (auto& kv : layers) {
        const AttentionRow row{q.data(), q_pos.data(), b.t, kv->pages(), {}, 0, b.keys, out.view()};
        attention(*stream, params, std::span(&row, 1));
      }
    });
    state.SetIterationTime(cost.wall);
    best = best_of(best, cost);
    const auto floats = memory->as<const float>();
    const Cost read = cost_of([&] {
      constexpr int64_t kPart = 1 << 17;
      stream->pool().parallel_for(static_cast<int64_t>(floats.size()) / kPart, [&](int64_t i, int) {
        benchmark::DoNotOptimize(cpu::read_all(floats.data() + i * kPart, kPart));
      });
    });
    probe = best_of(probe, {read.wall / kPoolBytes * 1e9, read.cpu / kPoolBytes * 1e9});
  }
  report(state, "GB/s", best, probe, static_cast<double>(bytes) * static_cast<double>(layers.size()) * 1e-9);
}

// dtype (0 f32, 1 bf16, 2 f16), heads, kv_heads, dim, keys, queries, page slots, threads
void prefill_args(benchmark::internal::Benchmark* b) {
  b->ArgNames({"dtype", "H", "G", "D", "keys", "T", "page", "threads"});
  for (const int threads : {1, 2}) {
    for (const int dtype : {0, 1, 2}) {
      b->Args({dtype, 9, 3, 64, 4096, 4096, 64, threads});
      b->Args({dtype, 9, 3, 64, 16384, 512, 64, threads});
      b->Args({dtype, 8, 2, 128, 4096, 1024, 64, threads});
      b->Args({dtype, 8, 2, 128, 16384, 512, 64, threads});
    }
    // One query tile: short enough for its best time to be undisturbed on a busy machine.
    b->Args({0, 3, 1, 64, 4096, 32, 64, threads});
    b->Args({1, 3, 1, 64, 4096, 32, 64, threads});
    b->Args({0, 4, 1, 128, 4096, 24, 64, threads});
    b->Args({0, 4, 4, 64, 4096, 1024, 64, threads});
    b->Args({0, 9, 3, 64, 4096, 1024, 22, threads});
    b->Args({0, 6, 2, 80, 4096, 512, 64, threads});
  }
  b->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(1.0);
}
void decode_args(benchmark::internal::Benchmark* b) {
  b->ArgNames({"dtype", "H", "G", "D", "keys", "T", "page", "threads"});
  for (const int threads : {1, 2}) {
    for (const int dtype : {0, 1, 2}) {
      b->Args({dtype, 9, 3, 64, 16384, 1, 64, threads});
      b->Args({dtype, 32, 8, 128, 16384, 1, 64, threads});
    }
    b->Args({0, 9, 3, 64, 16384, 1, 22, threads});
    b->Args({0, 9, 3, 64, 256, 1, 64, threads});
  }
  b->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(1.0);
}
BENCHMARK(prefill)->Apply(prefill_args)->Name("Prefill");
BENCHMARK(decode)->Apply(decode_args)->Name("Decode");

}  // namespace
}  // namespace lariat

int main(int argc, char** argv) {
  benchmark::AddCustomContext("isa", lariat::isa_name());
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
#endif
