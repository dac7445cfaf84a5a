// Validation of products and their split into tasks. Every output is one chain over K inside one task, so the
// split changes no bit.
#include "ops/matmul.h"

#include <algorithm>

#include "ops/cpu/matmul_kernels.h"

namespace lariat {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

bool is_weight_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

void check_packed(const PackedMatrix& w) {
  LARIAT_CHECK(is_weight_dtype(w.dtype), "weights in {}", dtype_name(w.dtype));
  LARIAT_CHECK(w.n > 0 && w.k > 0, "weights [{}, {}]", w.n, w.k);
  LARIAT_CHECK(w.data != nullptr && reinterpret_cast<uintptr_t>(w.data) % 64 == 0, "weights misaligned");
}

// Units of four panels, so that tasks end where register tiles do; a few tasks a thread, to even out.
void matvec(Stream& stream, const MatmulArgs& args) {
  const int64_t panels = ceil_div(args.w.n, kPanel);
  const int64_t units = ceil_div(panels, 4);
  constexpr int64_t kSmall = 64 * 1024;  // products: below this a second thread costs more than it saves
  const bool alone = stream.threads() == 1 || args.t * args.w.n * args.w.k < kSmall;
  const int64_t tasks = alone ? 1 : std::min(units, int64_t{4} * stream.threads());
  stream.pool().parallel_for(tasks, [&](int64_t i, int) {
    const int64_t begin = i * units / tasks * 4;
    const int64_t end = std::min(panels, (i + 1) * units / tasks * 4);
    cpu::gemv_task({.args = &args, .row0 = 0, .rows = args.t, .panel0 = begin, .panels = end - begin});
  });
}

// Row blocks as tall as the limit allows, unless that leaves too few tasks to even out over the threads.
int64_t row_block(const MatmulArgs& args, int64_t groups, int threads) {
  constexpr int64_t kRowsMin = 96;
  int64_t blocks = ceil_div(args.t, cpu::kGemmRowsMax);
  if (threads > 1) blocks = std::max(blocks, std::min(ceil_div(16 * threads, groups), args.t / kRowsMin));
  constexpr int64_t kStep =
      12;  // a multiple of every tile's rows, so that only the last block has a short tile
  return ceil_div(ceil_div(args.t, std::max(blocks, int64_t{1})), kStep) * kStep;
}

}  // namespace

void matmul(Stream& stream, const MatmulArgs& args) {
  check_packed(args.w);
  LARIAT_CHECK(args.t >= 0, "t = {}", args.t);
  if (args.t == 0) return;
  LARIAT_CHECK(args.x != nullptr && args.out != nullptr && args.x != args.out, "x and out");
  LARIAT_CHECK(args.t == 1 || (args.x_stride >= args.w.k && args.out_stride >= args.w.n),
               "strides {} and {} for [{}, {}]", args.x_stride, args.out_stride, args.w.n, args.w.k);
  if (args.t <= cpu::kGemvRowsMax) return matvec(stream, args);

  const int64_t panels = ceil_div(args.w.n, kPanel);
  const int64_t groups = ceil_div(panels, cpu::kGemmPanels);
  const int64_t rows = row_block(args, groups, stream.threads());
  // Groups fastest: the rows of x stay in cache while weights pass.
  stream.pool().parallel_for(ceil_div(args.t, rows) * groups, [&](int64_t i, int thread) {
    const int64_t row0 = i / groups * rows;
    const int64_t panel0 = i % groups * cpu::kGemmPanels;
    cpu::gemm_task({.args = &args,
                    .row0 = row0,
                    .rows = std::min(rows, args.t - row0),
                    .panel0 = panel0,
                    .panels = std::min(cpu::kGemmPanels, panels - panel0),
                    .scratch = stream.scratch(thread, cpu::gemm_scratch_bytes())});
  });
}

int64_t matmul_workspace_bytes(int threads, int64_t t_max, int64_t /*k_max*/) {
  return t_max <= cpu::kGemvRowsMax ? 0 : threads * static_cast<int64_t>(cpu::gemm_scratch_bytes());
}

int64_t packed_bytes(DType dtype, int64_t n, int64_t k) {
  LARIAT_CHECK(is_weight_dtype(dtype) && n >= 0 && k >= 0, "{} [{}, {}]", dtype_name(dtype), n, k);
  return PackedMatrix{.dtype = dtype, .n = n, .k = k}.bytes();
}

void pack_rows(Stream& stream, const PackArgs& args) {
  LARIAT_CHECK(is_weight_dtype(args.dtype) && is_weight_dtype(args.src.dtype), "{} from {}",
               dtype_name(args.dtype), dtype_name(args.src.dtype));
  LARIAT_CHECK(args.src.shape.rank() == 2, "shape {}", args.src.shape.str());
  LARIAT_CHECK(args.row0 >= 0 && args.rows >= 0 && args.row0 + args.rows <= args.src.shape[0],
               "rows [{}, +{}) of {}", args.row0, args.rows, args.src.shape.str());
  LARIAT_CHECK(args.col0 >= 0 && args.cols >= 0 && args.col0 + args.cols <= args.src.shape[1],
               "columns [{}, +{}) of {}", args.col0, args.cols, args.src.shape.str());
  if (args.rows == 0 || args.cols == 0) return;
  LARIAT_CHECK(args.dst != nullptr && reinterpret_cast<uintptr_t>(args.dst) % 64 == 0 && args.dst_row0 >= 0,
               "destination");
  const int64_t first = args.dst_row0 / kPanel;
  const int64_t last = (args.dst_row0 + args.rows - 1) / kPanel;
  stream.pool().parallel_for(last - first + 1, [&](int64_t i, int) { cpu::pack_panel(args, first + i); });
}

void embedding(Stream& stream, const PackedMatrix& table, const int32_t* ids, int64_t n, float* out) {
  check_packed(table);
  for (int64_t i = 0; i < n; ++i)
    LARIAT_CHECK(ids[i] >= 0 && ids[i] < table.n, "id {} of {}", ids[i], table.n);
  stream.pool().parallel_for(n, [&](int64_t i, int) { cpu::unpack_row(table, ids[i], out + i * table.k); });
}

}  // namespace lariat
