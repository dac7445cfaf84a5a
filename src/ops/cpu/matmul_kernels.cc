// Matrix and vector products over packed panels: tasks built from the register tile.
#include "ops/cpu/matmul_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/matmul_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/matmul_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {
namespace {

// Longest block of K: kGemmPanels panels of it, widened, are 96 KiB and stay in the second-level cache.
inline constexpr int64_t kBlockK = 384;
inline constexpr int64_t kGroupColumns = kGemmPanels * kPanel;

struct GemmScratch {
  float wide[kGemmPanels * kBlockK * kPanel];
  float acc[kGemmRowsMax * kGroupColumns];
};

template <typename W>
const W* panel_data(const PackedMatrix& w, int64_t panel) {
  return reinterpret_cast<const W*>(w.data) + panel * w.k * kPanel;
}

// Widens `kc` steps of `panels` panels into [panels][kBlockK][16]. f32 weights are used in place.
template <typename W>
void widen_block(const W* w, int64_t panel_stride, int64_t panels, int64_t kc, float* HWY_RESTRICT wide) {
  for (int64_t p = 0; p < panels; ++p) {
    const W* HWY_RESTRICT from = w + p * panel_stride;
    float* HWY_RESTRICT to = wide + p * kBlockK * kPanel;
    for (int64_t k = 0; k < kc; ++k, from += kPanel, to += kPanel) {
      __builtin_prefetch(from + 1024, 0, 3);
      LARIAT_UNROLL
      for (size_t i = 0; i < kPanelVecs; ++i)
        hn::Store(load_widen(from + i * kLanes), F32Tag(), to + i * kLanes);
    }
  }
}

// Asks for the lines of a tile's outputs, so that they arrive while its chains are computed.
HWY_INLINE void prefetch_out(const MatmulArgs& args, int64_t row0, int64_t rows, int64_t column0,
                             int64_t columns) {
  const int64_t valid = HWY_MIN(columns, args.w.n - column0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < valid; c += 16)
      __builtin_prefetch(args.out + (row0 + r) * args.out_stride + column0 + c, 1);
}

// A block of K, for all rows of a task.
struct Block {
  Tile<float> tile;  // at the task's first row and panel
  bool last;         // the chains end here: complete the outputs
  bool from_memory;  // the first tile to pass brings the weights to cache
};

void multiply_block(const MatmulTask& task, const Block& block) {
  const auto tile_rows = static_cast<int64_t>(kTileRows);
  for (int64_t p = 0; p < task.panels;) {
    int64_t taken = 0;
    for (int64_t r = 0; r < task.rows; r += tile_rows) {
      const int64_t rows = HWY_MIN(task.rows - r, tile_rows);
      // A short tile takes as many panels as the full ones did.
      taken = HWY_MIN(task.panels - p, static_cast<int64_t>(tile_panels(kTileRows)));
      const TileFn<float> fn = block.from_memory && r == 0 ? tile_fn<float, true>(rows, taken)
                                                           : tile_fn<float, false>(rows, taken);
      Tile<float> tile = block.tile;
      tile.x += r * tile.x_stride;
      tile.w += p * tile.panel_stride;
      tile.acc += r * kGroupColumns + p * kPanel;
      const int64_t column = (task.panel0 + p) * kPanel;
      if (block.last) prefetch_out(*task.args, task.row0 + r, rows, column, taken * kPanel);
      fn(tile);
      if (block.last)
        finish_rows(*task.args, task.row0 + r, rows, column, taken * kPanel, tile.acc, kGroupColumns);
    }
    p += taken;
  }
}

template <typename W>
void gemm(const MatmulTask& task) {
  const MatmulArgs& args = *task.args;
  auto& scratch = *reinterpret_cast<GemmScratch*>(task.scratch);
  const W* panels = panel_data<W>(args.w, task.panel0);
  const int64_t source_stride = args.w.k * kPanel;
  constexpr bool kInPlace = std::is_same_v<W, float>;
  for (int64_t k0 = 0; k0 < args.w.k; k0 += kBlockK) {
    const int64_t kc = HWY_MIN(kBlockK, args.w.k - k0);
    const W* weights = panels + k0 * kPanel;
    if constexpr (!kInPlace) widen_block(weights, source_stride, task.panels, kc, scratch.wide);
    const float* wide = kInPlace ? reinterpret_cast<const float*>(weights) : scratch.wide;
    const Tile<float> tile{.w = wide,
                           .panel_stride = kInPlace ? source_stride : kBlockK * kPanel,
                           .x = args.x + task.row0 * args.x_stride + k0,
                           .x_stride = args.x_stride,
                           .k = kc,
                           .acc = scratch.acc,
                           .acc_stride = kGroupColumns,
                           .resume = k0 > 0};
    multiply_block(task, {.tile = tile, .last = k0 + kc == args.w.k, .from_memory = kInPlace});
  }
}

// Panels outer, so that weights come from memory once; several row tiles reread them from cache.
template <typename W>
void gemv(const MatmulTask& task) {
  const MatmulArgs& args = *task.args;
  constexpr int64_t kMostPanels = 8;
  HWY_ALIGN float acc[kGemvTileRows * kMostPanels * kPanel];
  constexpr auto kRows = static_cast<int64_t>(kGemvTileRows);
  const int64_t tiles = (task.rows + kRows - 1) / kRows;
  const int64_t tile_rows = (task.rows + tiles - 1) / tiles;
  for (int64_t p = 0; p < task.panels;) {
    int64_t taken =
        HWY_MIN(task.panels - p, static_cast<int64_t>(tile_panels(static_cast<size_t>(tile_rows))));
    for (int64_t r = 0; r < task.rows; r += tile_rows) {
      const int64_t rows = HWY_MIN(tile_rows, task.rows - r);
      const TileFn<W> fn = tile_fn<W, true>(rows, taken);
      fn({.w = panel_data<W>(args.w, task.panel0 + p),
          .panel_stride = args.w.k * kPanel,
          .x = args.x + (task.row0 + r) * args.x_stride,
          .x_stride = args.x_stride,
          .k = args.w.k,
          .acc = acc,
          .acc_stride = kMostPanels * kPanel,
          .resume = false});
      finish_rows(args, task.row0 + r, rows, (task.panel0 + p) * kPanel, taken * kPanel, acc,
                  kMostPanels * kPanel);
    }
    p += taken;
  }
}

void gemm_any(const MatmulTask& task) {
  switch (task.args->w.dtype) {
    case DType::kBF16:
      return gemm<Bf16Bits>(task);
    case DType::kF16:
      return gemm<F16Bits>(task);
    default:
      return gemm<float>(task);
  }
}

void gemv_any(const MatmulTask& task) {
  switch (task.args->w.dtype) {
    case DType::kBF16:
      return gemv<Bf16Bits>(task);
    case DType::kF16:
      return gemv<F16Bits>(task);
    default:
      return gemv<float>(task);
  }
}

size_t gemm_scratch() {
  return sizeof(GemmScratch);
}

}  // namespace
}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat::cpu {
HWY_EXPORT(gemm_any);
HWY_EXPORT(gemv_any);
HWY_EXPORT(gemm_scratch);

size_t gemm_scratch_bytes() {
  return HWY_DYNAMIC_DISPATCH(gemm_scratch)();
}
void gemm_task(const MatmulTask& task) {
  HWY_DYNAMIC_DISPATCH(gemm_any)(task);
}
void gemv_task(const MatmulTask& task) {
  HWY_DYNAMIC_DISPATCH(gemv_any)(task);
}
}  // namespace lariat::cpu
#endif
