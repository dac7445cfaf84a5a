// The register tile of every product: MR rows of x times NP panels of weights, one FMA chain an output.
// Included once per target. Partial chains live in f32 memory between blocks of K, which is exact.
#if defined(LARIAT_OPS_CPU_MATMUL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_OPS_CPU_MATMUL_TILE_INL_H_
#undef LARIAT_OPS_CPU_MATMUL_TILE_INL_H_
#else
#define LARIAT_OPS_CPU_MATMUL_TILE_INL_H_
#endif

#include "ops/cpu/simd_common-inl.h"
#include "ops/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

inline constexpr size_t kPanelVecs = kPanel / kLanes;

// Accumulators that fit the register file beside the weights and the broadcast.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
inline constexpr size_t kAccumulators = 12;
#else
inline constexpr size_t kAccumulators = 24;
#endif
// Most rows of a matrix product's tile: six, or fewer where one panel of six rows does not fit.
inline constexpr size_t kTileRows = HWY_MIN(size_t{6}, kAccumulators / kPanelVecs);
// And of a vector product's: eight rows then need one pass over the weights, if one panel of them fits.
inline constexpr size_t kGemvTileRows = HWY_MAX(kTileRows, HWY_MIN(size_t{8}, kAccumulators / kPanelVecs));

// Panels of a tile of `rows` rows: as many as fit, a power of two, at most eight.
constexpr size_t tile_panels(size_t rows) {
  size_t panels = 8;
  while (panels > 1 && rows * panels * kPanelVecs > kAccumulators) panels /= 2;
  return panels;
}

template <typename W>
struct Tile {
  const W* w;            // first panel, at the first k
  int64_t panel_stride;  // elements between panels
  const float* x;        // first row, at the first k
  int64_t x_stride;
  int64_t k;   // length of this block of the chains
  float* acc;  // [MR][acc_stride]: the chains so far, in and out
  int64_t acc_stride;
  bool resume;  // false: the chains start here, from zero
};

// One step of every chain of the tile.
template <size_t MR, size_t NP, typename W>
HWY_INLINE void tile_step(const W* HWY_RESTRICT w, int64_t panel_stride, const float* HWY_RESTRICT x,
                          int64_t x_stride, F32Vec (&acc)[MR][NP * kPanelVecs]) {
  constexpr size_t kVecs = NP * kPanelVecs;
  const F32Tag d;
  F32Vec b[kVecs];
  LARIAT_UNROLL
  for (size_t j = 0; j < kVecs; ++j)
    b[j] = load_widen(w + static_cast<int64_t>(j / kPanelVecs) * panel_stride + j % kPanelVecs * kLanes);
  LARIAT_UNROLL
  for (size_t i = 0; i < MR; ++i) {
    const F32Vec a = hn::Set(d, x[static_cast<int64_t>(i) * x_stride]);
    LARIAT_UNROLL
    for (size_t j = 0; j < kVecs; ++j) acc[i][j] = hn::MulAdd(a, b[j], acc[i][j]);
  }
}

// Asks for the next four steps' worth of weights of every panel, some way ahead. A core's own prefetchers
// follow the streams too, but do not keep enough lines in flight while the chains use the weights slowly.
template <size_t NP, typename W>
HWY_INLINE void prefetch_weights(const W* w, int64_t panel_stride) {
  constexpr size_t kAhead = 4096 / NP;  // bytes; measured best among 2048..16384
  constexpr size_t kTurn = 4 * kPanel * sizeof(W);
  LARIAT_UNROLL
  for (size_t p = 0; p < NP; ++p) {
    const auto* at = reinterpret_cast<const std::byte*>(w + static_cast<int64_t>(p) * panel_stride) + kAhead;
    LARIAT_UNROLL
    for (size_t line = 0; line < kTurn; line += 64) __builtin_prefetch(at + line, 0, 3);
  }
}

// kFromMemory: the weights are read for the first time, not from scratch.
template <size_t MR, size_t NP, bool kFromMemory, typename W>
HWY_NOINLINE void run_tile(const Tile<W>& t) {
  constexpr size_t kVecs = NP * kPanelVecs;
  const F32Tag d;
  F32Vec acc[MR][kVecs];
  LARIAT_UNROLL
  for (size_t i = 0; i < MR; ++i) {
    LARIAT_UNROLL
    for (size_t j = 0; j < kVecs; ++j)
      acc[i][j] = t.resume ? hn::LoadU(d, t.acc + i * t.acc_stride + j * kLanes) : hn::Zero(d);
  }
  const W* HWY_RESTRICT w = t.w;
  const float* HWY_RESTRICT x = t.x;
  const int64_t x_stride = t.x_stride;
  const int64_t panel_stride = t.panel_stride;
  // Four steps a turn: the turn's own additions compete with FMAs for ports.
  int64_t k = 0;
  for (; k + 4 <= t.k; k += 4, w += 4 * kPanel, x += 4) {
    if constexpr (kFromMemory) prefetch_weights<NP>(w, panel_stride);
    LARIAT_UNROLL
    for (int64_t u = 0; u < 4; ++u) tile_step<MR, NP>(w + u * kPanel, panel_stride, x + u, x_stride, acc);
  }
  for (; k < t.k; ++k, w += kPanel, ++x) tile_step<MR, NP>(w, panel_stride, x, x_stride, acc);
  LARIAT_UNROLL
  for (size_t i = 0; i < MR; ++i) {
    LARIAT_UNROLL
    for (size_t j = 0; j < kVecs; ++j) hn::StoreU(acc[i][j], d, t.acc + i * t.acc_stride + j * kLanes);
  }
}

template <typename W>
using TileFn = void (*)(const Tile<W>&);

// The tile of MR rows and `panels` panels, a power of two that is at most tile_panels(MR).
template <size_t MR, bool kFromMemory, typename W>
TileFn<W> tile_fn_of_rows(int64_t panels) {
  constexpr size_t kMost = tile_panels(MR);
  if constexpr (kMost >= 8) {
    if (panels == 8) return run_tile<MR, 8, kFromMemory, W>;
  }
  if constexpr (kMost >= 4) {
    if (panels == 4) return run_tile<MR, 4, kFromMemory, W>;
  }
  if constexpr (kMost >= 2) {
    if (panels == 2) return run_tile<MR, 2, kFromMemory, W>;
  }
  return run_tile<MR, 1, kFromMemory, W>;
}

// The tile for `rows` (1..kGemvTileRows) and `panels`; the latter is clipped to what the tile takes.
template <typename W, bool kFromMemory, size_t MR = kGemvTileRows>
TileFn<W> tile_fn(int64_t rows, int64_t& panels) {
  if constexpr (MR > 1) {
    if (rows < static_cast<int64_t>(MR)) return tile_fn<W, kFromMemory, MR - 1>(rows, panels);
  }
  int64_t taken = 1;
  while (taken * 2 <= panels && taken * 2 <= static_cast<int64_t>(tile_panels(MR))) taken *= 2;
  panels = taken;
  return tile_fn_of_rows<MR, kFromMemory, W>(taken);
}

// Complete chains become outputs: out = chain (+ bias) or out = out + (chain (+ bias)); columns beyond N are
// dropped.
inline void finish_rows(const MatmulArgs& args, int64_t row0, int64_t rows, int64_t column0, int64_t columns,
                        const float* acc, int64_t acc_stride) {
  const F32Tag d;
  const int64_t valid = HWY_MIN(columns, args.w.n - column0);
  for (int64_t r = 0; r < rows; ++r, acc += acc_stride) {
    float* out = args.out + (row0 + r) * args.out_stride + column0;
    for (int64_t c = 0; c < valid; c += static_cast<int64_t>(kLanes)) {
      const size_t n = static_cast<size_t>(HWY_MIN(valid - c, static_cast<int64_t>(kLanes)));
      auto v = hn::LoadU(d, acc + c);
      if (n == kLanes) {
        if (args.bias != nullptr) v = hn::Add(v, hn::LoadU(d, args.bias + column0 + c));
        if (args.accumulate) v = hn::Add(hn::LoadU(d, out + c), v);
        hn::StoreU(v, d, out + c);
      } else {
        if (args.bias != nullptr) v = hn::Add(v, load_tail(args.bias + column0 + c, n));
        if (args.accumulate) v = hn::Add(load_tail(out + c, n), v);
        store_tail(v, out + c, n);
      }
    }
  }
}

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
