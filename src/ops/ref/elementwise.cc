// Scalar oracle of the row-wise ops.
#include "ops/ref/elementwise.h"

#include <cmath>

namespace lariat::ref {

void rms_norm(const RmsNormArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.x_stride;
    float* out = args.out + r * args.out_stride;
    double sum = 0;
    for (int64_t i = 0; i < args.d; ++i) sum += double{x[i]} * double{x[i]};
    const double scale = 1 / std::sqrt(sum / static_cast<double>(args.d) + double{args.eps});
    for (int64_t i = 0; i < args.d; ++i)
      out[i] = static_cast<float>(double{x[i]} * scale * double{args.weight[i]});
  }
}

void rope(const RopeArgs& args) {
  const int64_t half = args.dim / 2;
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t h = 0; h < args.heads; ++h) {
      float* x = args.x + r * args.x_stride + h * args.dim;
      for (int64_t i = 0; i < half; ++i) {
        const double a = x[i];
        const double b = x[i + half];
        const double c = args.cos[r * half + i];
        const double s = args.sin[r * half + i];
        x[i] = static_cast<float>(a * c - b * s);
        x[i + half] = static_cast<float>(b * c + a * s);
      }
    }
  }
}

void silu_mul(const SiluMulArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t i = 0; i < args.d; ++i) {
      const double g = args.gate[r * args.in_stride + i];
      const double u = args.up[r * args.in_stride + i];
      args.out[r * args.out_stride + i] = static_cast<float>(g / (1 + std::exp(-g)) * u);
    }
  }
}

}  // namespace lariat::ref
