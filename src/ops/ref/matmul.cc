// Scalar oracle of products.
#include "ops/ref/matmul.h"

#include <cmath>
#include <cstring>

namespace lariat::ref {
namespace {

float stored_at(const PackedMatrix& w, int64_t index) {
  const std::byte* p = w.data + index * static_cast<int64_t>(dtype_size(w.dtype));
  if (w.dtype == DType::kF32) {
    float v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return w.dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

template <typename Chain>
void for_each_output(const MatmulArgs& args, Chain chain) {
  const std::vector<float> w = unpack(args.w);
  for (int64_t t = 0; t < args.t; ++t)
    for (int64_t n = 0; n < args.w.n; ++n)
      chain(args.x + t * args.x_stride, w.data() + n * args.w.k, n, args.out[t * args.out_stride + n]);
}

}  // namespace

std::vector<float> unpack(const PackedMatrix& w) {
  std::vector<float> rows(static_cast<size_t>(w.n * w.k));
  for (int64_t n = 0; n < w.n; ++n)
    for (int64_t k = 0; k < w.k; ++k)
      rows[static_cast<size_t>(n * w.k + k)] = stored_at(w, (n / kPanel * w.k + k) * kPanel + n % kPanel);
  return rows;
}

void matmul_double(const MatmulArgs& args) {
  for_each_output(args, [&](const float* x, const float* w, int64_t n, float& out) {
    double sum = 0;
    for (int64_t k = 0; k < args.w.k; ++k) sum += static_cast<double>(x[k]) * static_cast<double>(w[k]);
    if (args.bias != nullptr) sum += static_cast<double>(args.bias[n]);
    if (args.accumulate) sum += static_cast<double>(out);
    out = static_cast<float>(sum);
  });
}

void matmul_chain(const MatmulArgs& args, bool fused) {
  for_each_output(args, [&](const float* x, const float* w, int64_t n, float& out) {
    float sum = 0;
    for (int64_t k = 0; k < args.w.k; ++k) sum = fused ? std::fma(x[k], w[k], sum) : x[k] * w[k] + sum;
    if (args.bias != nullptr) sum += args.bias[n];
    out = args.accumulate ? out + sum : sum;
  });
}

}  // namespace lariat::ref
