// The CPU kernels behind ops/matmul.h: one call is one task of one thread, run on the chosen instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/matmul.h"

namespace lariat::cpu {

// Panels a matrix-product task widens and multiplies together.
inline constexpr int64_t kGemmPanels = 4;
// Up to this many rows the weights are widened in registers on their way from memory (decode, short chunks);
// above it, once into scratch, which pays from about 40 rows on.
inline constexpr int64_t kGemvRowsMax = 32;
// Most rows of a matrix-product task, so that its partial chains stay in the second-level cache; a multiple
// of every tile's rows.
inline constexpr int64_t kGemmRowsMax = 192;

// Rows [row0, row0 + rows) times panels [panel0, panel0 + panels) of args.w, written to args.out.
struct MatmulTask {
  const MatmulArgs* args = nullptr;
  int64_t row0 = 0;
  int64_t rows = 0;
  int64_t panel0 = 0;
  int64_t panels = 0;
  std::byte* scratch = nullptr;  // gemm_task: gemm_scratch_bytes(), 64-byte aligned
};

// Bytes that a gemm_task of any shape within the limits above needs.
size_t gemm_scratch_bytes();
// rows <= kGemmRowsMax, panels <= kGemmPanels.
void gemm_task(const MatmulTask& task);
// rows <= kGemvRowsMax, any number of panels.
void gemv_task(const MatmulTask& task);

// Writes destination panel `panel`'s share of the rows to pack; its lanes past the last row become zero.
void pack_panel(const PackArgs& args, int64_t panel);
// Row `row` of a packed matrix as f32, [k].
void unpack_row(const PackedMatrix& w, int64_t row, float* out);

}  // namespace lariat::cpu
