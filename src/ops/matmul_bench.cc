// Products against what this machine can do, measured in the same run and interleaved with it: the peak of
// FMAs on registers, the bandwidth of plain reads of the same weights, and oneDNN's f32 product. usage:
// ops_matmul_bench [gemm|gemv] [threads...]     default both, 1 2. The best repetition counts.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dnnl.hpp"
#include "ops/isa.h"
#include "ops/matmul.h"
#include "ops/random_test.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/matmul_bench.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/simd_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

// 12 independent chains of FMAs on registers; returns their flops.
double fma_probe(float* sink) {
  constexpr int64_t kSteps = 200'000;
  constexpr size_t kChains = 12;
  const F32Tag d;
  F32Vec acc[kChains];
  LARIAT_UNROLL
  for (size_t i = 0; i < kChains; ++i) acc[i] = hn::Set(d, static_cast<float>(i) * 0.1f);
  const auto a = hn::Set(d, sink[0]);
  const auto b = hn::Set(d, sink[1]);
  for (int64_t s = 0; s < kSteps; ++s) {
    LARIAT_UNROLL
    for (F32Vec& sum : acc) sum = hn::MulAdd(sum, a, b);
  }
  auto sum = acc[0];
  LARIAT_UNROLL
  for (size_t i = 1; i < kChains; ++i) sum = hn::Add(sum, acc[i]);
  hn::StoreU(sum, d, sink);
  return 2.0 * kSteps * kChains * kLanes;
}

// Reads every byte once, in order.
void read_probe(const float* p, int64_t n, float* sink) {
  const F32Tag d;
  F32Vec sum[4];
  LARIAT_UNROLL
  for (F32Vec& part : sum) part = hn::Zero(d);
  for (int64_t k = 0; k + static_cast<int64_t>(4 * kLanes) <= n; k += static_cast<int64_t>(4 * kLanes)) {
    LARIAT_UNROLL
    for (size_t i = 0; i < 4; ++i) sum[i] = hn::Or(sum[i], hn::LoadU(d, p + k + i * kLanes));
  }
  hn::StoreU(hn::Or(hn::Or(sum[0], sum[1]), hn::Or(sum[2], sum[3])), d, sink);
}

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat::cpu {
namespace {
HWY_EXPORT(fma_probe);
HWY_EXPORT(read_probe);
}  // namespace
double run_fma_probe(float* sink) {
  return HWY_DYNAMIC_DISPATCH(fma_probe)(sink);
}
void run_read_probe(const float* p, int64_t n, float* sink) {
  HWY_DYNAMIC_DISPATCH(read_probe)(p, n, sink);
}
}  // namespace lariat::cpu

namespace lariat {
namespace {

// oneDNN's threads are those of the OpenMP runtime that it brings along.
void set_onednn_threads(int threads) {
  auto* set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  LARIAT_CHECK(set != nullptr, "no OpenMP runtime");
  set(threads);
}

double now_s(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Best time of each of `fns`, run in turn `rounds` times, so that load from elsewhere hits all alike. One
// thread counts its own time on the CPU, several count wall time.
std::vector<double> best_of(int threads, int rounds, const std::vector<std::function<void()>>& fns) {
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  std::vector<double> best(fns.size(), 1e30);
  for (int r = 0; r < rounds; ++r)
    for (size_t i = 0; i < fns.size(); ++i) {
      const double start = now_s(clock);
      fns[i]();
      best[i] = std::min(best[i], now_s(clock) - start);
    }
  return best;
}

struct Weights {
  Buffer memory;
  PackedMatrix packed;
};

Weights random_weights(DType dtype, int64_t n, int64_t k) {
  Weights w;
  const auto stream = Stream::cpu(2);
  const std::vector<float> rows = random_floats(static_cast<size_t>(std::min(n, int64_t{512}) * k), 7);
  w.memory = std::move(Buffer::allocate(static_cast<size_t>(packed_bytes(dtype, n, k)))).value();
  for (int64_t at = 0; at < n; at += 512)
    pack_rows(*stream, {.src = {rows.data(), DType::kF32, {std::min(n, int64_t{512}), k}},
                        .rows = std::min(int64_t{512}, n - at),
                        .cols = k,
                        .dst = w.memory.data(),
                        .dtype = dtype,
                        .dst_row0 = at});
  w.packed = {.data = w.memory.data(), .dtype = dtype, .n = n, .k = k};
  return w;
}

// oneDNN's f32 product with weights packed once, in the layout it prefers.
class OneDnnProduct {
 public:
  OneDnnProduct(const std::vector<float>& x, int64_t t, int64_t n, int64_t k)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    const auto f32 = memory::data_type::f32;
    const memory::desc x_desc({t, k}, f32, memory::format_tag::ab);
    const memory::desc out_desc({t, n}, f32, memory::format_tag::ab);
    const memory::desc any({k, n}, f32, memory::format_tag::any);
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x_desc, any, out_desc), engine_);
    x_ = memory(x_desc, engine_);
    std::copy(x.begin(), x.end(), static_cast<float*>(x_.get_data_handle()));
    w_ = memory(desc.weights_desc(), engine_);
    out_ = memory(out_desc, engine_);
    const std::vector<float> values = random_floats(static_cast<size_t>(n * k), 8);
    memory plain(memory::desc({k, n}, f32, memory::format_tag::ba), engine_);
    std::copy(values.begin(), values.end(), static_cast<float*>(plain.get_data_handle()));
    dnnl::reorder(plain, w_).execute(stream_, plain, w_);
    stream_.wait();
    product_ = dnnl::matmul(desc);
  }
  void run() {
    product_.execute(stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, w_}, {DNNL_ARG_DST, out_}});
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory x_, w_, out_;
  dnnl::matmul product_;
};

double fma_flops(Stream& stream, const std::function<void(double)>& report) {
  std::vector<double> flops(static_cast<size_t>(stream.threads()));
  stream.pool().parallel_for(stream.threads(), [&](int64_t i, int) {
    float sink[16] = {0.5f, 0.25f};
    flops[static_cast<size_t>(i)] = cpu::run_fma_probe(sink);
  });
  double total = 0;
  for (const double f : flops) total += f;
  report(total);
  return total;
}

struct Shape3 {
  int64_t t, k, n;
};

void bench_gemm(int threads) {
  const auto stream = Stream::cpu(threads);
  set_onednn_threads(threads);
  std::printf("\n%d thread(s), GFLOP/s (share of the FMA peak)\n%18s %8s %16s %16s %16s %16s\n", threads,
              "T x K x N", "peak", "f32", "bf16", "f16", "oneDNN f32");
  for (const Shape3 s : {Shape3{512, 576, 3072},
                         {512, 576, 960},
                         {512, 576, 576},
                         {512, 576, 192},
                         {512, 1536, 576},
                         {512, 2048, 2048},
                         {128, 2048, 2048},
                         {32, 2048, 2048},
                         {16, 576, 3072}}) {
    const std::vector<float> x = random_floats(static_cast<size_t>(s.t * s.k), 1);
    std::vector<float> out(static_cast<size_t>(s.t * s.n));
    double peak_flops = 0;
    std::vector<std::function<void()>> runs = {
        [&] { fma_flops(*stream, [&](double f) { peak_flops = f; }); }};
    std::vector<Weights> weights;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      weights.push_back(random_weights(dtype, s.n, s.k));
    for (const Weights& w : weights)
      runs.emplace_back([&, packed = w.packed] {
        matmul(*stream,
               {.x = x.data(), .x_stride = s.k, .t = s.t, .w = packed, .out = out.data(), .out_stride = s.n});
      });
    OneDnnProduct rival(x, s.t, s.n, s.k);
    runs.emplace_back([&] { rival.run(); });
    const std::vector<double> best = best_of(threads, 30, runs);
    const double flops = 2.0 * static_cast<double>(s.t * s.k * s.n);
    const double peak = peak_flops / best[0];
    std::printf("%5ldx%5ldx%6ld %8.1f", s.t, s.k, s.n, peak / 1e9);
    for (size_t i = 1; i < best.size(); ++i)
      std::printf("   %7.1f (%3.0f%%)", flops / best[i] / 1e9, 100 * flops / best[i] / peak);
    std::printf("\n");
    std::fflush(stdout);
  }
}

void bench_gemv(int threads) {
  const auto stream = Stream::cpu(threads);
  std::printf(
      "\n%d thread(s), weights read once, GB/s (share of plain reads of the same bytes)\n%14s %5s %8s %15s\n",
      threads, "K x N", "dtype", "read", "T = 1, 2, 4, 8");
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{576, 49152},
                             {576, 3072},
                             {576, 576},
                             {1536, 576},
                             {2048, 2048},
                             {2048, 8192}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      // As many copies as exceed any cache that the process could keep to itself.
      const int64_t copies = std::max(int64_t{1}, (int64_t{384} << 20) / packed_bytes(dtype, n, k));
      std::vector<Weights> weights;
      for (int64_t c = 0; c < copies; ++c) weights.push_back(random_weights(dtype, n, k));
      const std::vector<float> x = random_floats(static_cast<size_t>(8 * k), 1);
      std::vector<float> out(static_cast<size_t>(8 * n));
      std::vector<std::function<void()>> runs = {[&] {
        for (const Weights& w : weights) {
          const int64_t floats = w.packed.bytes() / 4;
          const int64_t parts = threads == 1 ? 1 : 4 * threads;
          stream->pool().parallel_for(parts, [&](int64_t i, int) {
            float sink[16];
            cpu::run_read_probe(reinterpret_cast<const float*>(w.packed.data) + i * floats / parts,
                                floats / parts, sink);
          });
        }
      }};
      for (const int64_t t : {1, 2, 4, 8})
        runs.emplace_back([&, t] {
          for (const Weights& w : weights)
            matmul(*stream,
                   {.x = x.data(), .x_stride = k, .t = t, .w = w.packed, .out = out.data(), .out_stride = n});
        });
      const std::vector<double> best = best_of(threads, 5, runs);
      const double bytes = static_cast<double>(weights[0].packed.bytes() * copies);
      std::printf("%6ldx%6ld %6s %8.1f", k, n, std::string(dtype_name(dtype)).c_str(), bytes / best[0] / 1e9);
      for (size_t i = 1; i < best.size(); ++i)
        std::printf("   %6.1f (%3.0f%%)", bytes / best[i] / 1e9, 100 * best[0] / best[i]);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace lariat

int main(int argc, char** argv) {
  double load[1] = {0};
  if (getloadavg(load, 1) != 1) load[0] = -1;
  std::printf("isa %s, load average at start %.2f\n", lariat::isa_name(), load[0]);
  const std::string what = argc > 1 ? argv[1] : "";
  const bool only = what == "gemm" || what == "gemv";
  std::vector<int> threads;
  for (int i = only ? 2 : 1; i < argc; ++i) threads.push_back(std::max(1, std::atoi(argv[i])));
  if (threads.empty()) threads = {1, 2};
  for (const int t : threads) {
    if (what != "gemv") lariat::bench_gemm(t);
  }
  for (const int t : threads) {
    if (what != "gemm") lariat::bench_gemv(t);
  }
}
#endif
