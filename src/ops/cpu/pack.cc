// Packing of weight rows into panels, and a row back out of them. Plain C++: load time and embedding lookups.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/cpu/matmul_kernels.h"

namespace lariat::cpu {
namespace {

struct F32Format {
  using Stored = float;
  static float widen(float v) { return v; }
  static float narrow(float v) { return v; }
};
struct Bf16Format {
  using Stored = Bf16;
  static float widen(Bf16 v) { return bf16_to_f32(v); }
  static Bf16 narrow(float v) { return f32_to_bf16(v); }
};
struct F16Format {
  using Stored = F16;
  static float widen(F16 v) { return f16_to_f32(v); }
  static F16 narrow(float v) { return f32_to_f16(v); }
};

template <typename Fn>
void with_format(DType dtype, Fn fn) {
  if (dtype == DType::kBF16) {
    fn(Bf16Format{});
  } else if (dtype == DType::kF16) {
    fn(F16Format{});
  } else {
    fn(F32Format{});
  }
}

// Files align nothing: sources are read bytewise.
template <typename From, typename To>
typename To::Stored convert_at(const std::byte* src, int64_t index) {
  typename From::Stored v;
  std::memcpy(&v, src + index * static_cast<int64_t>(sizeof v), sizeof v);
  if constexpr (std::is_same_v<From, To>) {
    return v;
  } else {
    return To::narrow(From::widen(v));
  }
}

template <typename From, typename To>
void pack_lanes(const PackArgs& args, int64_t panel) {
  const int64_t lane_begin = std::max(args.dst_row0 - panel * kPanel, int64_t{0});
  const int64_t lane_end = std::min(args.dst_row0 + args.rows - panel * kPanel, int64_t{kPanel});
  const int64_t row = args.row0 + panel * kPanel - args.dst_row0;  // of lane 0, possibly before row0
  const int64_t src_k = args.src.shape[1];
  const auto* src = static_cast<const std::byte*>(args.src.data);
  auto* dst = reinterpret_cast<typename To::Stored*>(args.dst) + panel * kPanel * args.cols;
  // A block of K at a time keeps the lines of all sixteen source rows and of the destination in L1.
  constexpr int64_t kBlock = 128;
  for (int64_t k0 = 0; k0 < args.cols; k0 += kBlock) {
    const int64_t k1 = std::min(args.cols, k0 + kBlock);
    for (int64_t lane = lane_begin; lane < kPanel; ++lane) {
      const int64_t at = (row + lane) * src_k + args.col0;
      if (lane < lane_end) {
        for (int64_t k = k0; k < k1; ++k) dst[k * kPanel + lane] = convert_at<From, To>(src, at + k);
      } else {
        for (int64_t k = k0; k < k1; ++k) dst[k * kPanel + lane] = 0;
      }
    }
  }
}

}  // namespace

void pack_panel(const PackArgs& args, int64_t panel) {
  with_format(args.src.dtype, [&](auto from) {
    with_format(args.dtype, [&](auto to) { pack_lanes<decltype(from), decltype(to)>(args, panel); });
  });
}

void unpack_row(const PackedMatrix& w, int64_t row, float* out) {
  with_format(w.dtype, [&](auto format) {
    using Format = decltype(format);
    const auto* lane =
        reinterpret_cast<const typename Format::Stored*>(w.data) + row / kPanel * kPanel * w.k + row % kPanel;
    for (int64_t k = 0; k < w.k; ++k) out[k] = Format::widen(lane[k * kPanel]);
  });
}

}  // namespace lariat::cpu
