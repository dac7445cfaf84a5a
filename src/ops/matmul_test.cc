// Products on every compiled instruction set: bit for bit against the scalar chain, within tolerance of a
// double sum and of oneDNN, and unchanged by batch, threads, strides and what lies in the padding.
#include "ops/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "dnnl.hpp"
#include "ops/cpu/target_test.h"
#include "ops/isa.h"
#include "ops/random_test.h"
#include "ops/ref/matmul.h"

namespace lariat {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

bool fused() {
  return std::string(isa_name()) != "sse4";
}

std::vector<uint32_t> bits_of(const std::vector<float>& v) {
  std::vector<uint32_t> bits(v.size());
  for (size_t i = 0; i < v.size(); ++i) bits[i] = std::bit_cast<uint32_t>(v[i]);
  return bits;
}

// Packed random weights [n, k] with their memory.
struct Weights {
  Buffer memory;
  PackedMatrix packed;
  std::vector<float> rows;  // before rounding to dtype
};

Weights random_weights(DType dtype, int64_t n, int64_t k, uint32_t seed) {
  Weights w;
  w.rows = random_floats(static_cast<size_t>(n * k), seed, 0.5f);
  w.memory = std::move(Buffer::allocate(static_cast<size_t>(packed_bytes(dtype, n, k)))).value();
  const auto stream = Stream::cpu(1);
  pack_rows(*stream, {.src = {w.rows.data(), DType::kF32, {n, k}},
                      .row0 = 0,
                      .rows = n,
                      .col0 = 0,
                      .cols = k,
                      .dst = w.memory.data(),
                      .dtype = dtype,
                      .dst_row0 = 0});
  w.packed = {.data = w.memory.data(), .dtype = dtype, .n = n, .k = k};
  return w;
}

// A product's inputs in memory that is misaligned, strided and full of NaN around the real values.
struct Problem {
  Problem(int64_t t_, const Weights& w_, bool bias_, bool accumulate_, uint32_t seed) : t(t_), w(&w_) {
    const int64_t k = w->packed.k;
    const int64_t n = w->packed.n;
    x_stride = k + 3;
    out_stride = n + 5;
    x.assign(static_cast<size_t>(t * x_stride + 2), kNan);
    const std::vector<float> values = random_floats(static_cast<size_t>(t * k), seed);
    for (int64_t i = 0; i < t; ++i)
      for (int64_t j = 0; j < k; ++j)
        x[static_cast<size_t>(1 + i * x_stride + j)] = values[static_cast<size_t>(i * k + j)];
    out.assign(static_cast<size_t>(t * out_stride + 1), kNan);
    if (bias_) bias = random_floats(static_cast<size_t>(n), seed + 1);
    accumulate = accumulate_;
    if (accumulate) {
      const std::vector<float> old = random_floats(static_cast<size_t>(t * n), seed + 2);
      for (int64_t i = 0; i < t; ++i)
        for (int64_t j = 0; j < n; ++j)
          out[static_cast<size_t>(1 + i * out_stride + j)] = old[static_cast<size_t>(i * n + j)];
    }
  }

  MatmulArgs args(std::vector<float>& result) const {
    return {.x = x.data() + 1,
            .x_stride = x_stride,
            .t = t,
            .w = w->packed,
            .bias = bias.empty() ? nullptr : bias.data(),
            .out = result.data() + 1,
            .out_stride = out_stride,
            .accumulate = accumulate};
  }
  std::vector<float> run(int threads) const {
    std::vector<float> result = out;
    const auto stream = Stream::cpu(threads);
    matmul(*stream, args(result));
    return result;
  }

  int64_t t;
  const Weights* w;
  int64_t x_stride = 0;
  int64_t out_stride = 0;
  std::vector<float> x, out, bias;
  bool accumulate = false;
};

class Matmul : public TargetTest {};
LARIAT_FOR_EACH_TARGET(Matmul);

// Also shows that padding neither leaks in (it is NaN) nor is written (it stays the same NaN).
TEST_P(Matmul, EqualsTheScalarChainBitForBit) {
  uint32_t seed = 1;
  for (const DType dtype : kDTypes)
    for (const int64_t n : {1, 15, 16, 17, 100})
      for (const int64_t k : {1, 7, 255, 576}) {
        const Weights w = random_weights(dtype, n, k, ++seed);
        for (const int64_t t : {0, 1, 2, 3, 5, 6, 7, 8, 9, 33, 63}) {
          ++seed;
          const Problem p(t, w, seed % 2 == 0, t % 2 == 0, seed);
          std::vector<float> want = p.out;
          ref::matmul_chain(p.args(want), fused());
          ASSERT_EQ(bits_of(p.run(1)), bits_of(want))
              << dtype_name(dtype) << " [" << t << ", " << k << "] x [" << n << "], seed " << seed;
        }
      }
}

TEST_P(Matmul, IsCloseToTheDoubleSum) {
  for (const DType dtype : kDTypes) {
    const Weights w = random_weights(dtype, 100, 1536, 11);
    const Problem p(9, w, true, true, 12);
    std::vector<float> want = p.out;
    ref::matmul_double(p.args(want));
    const std::vector<float> got = p.run(2);
    for (int64_t i = 0; i < p.t; ++i)
      for (int64_t j = 0; j < 100; ++j) {
        const auto at = static_cast<size_t>(1 + i * p.out_stride + j);
        // Sums of 1536 products of size 0.5: magnitude 20, and a chain rounds each step.
        EXPECT_NEAR(got[at], want[at], 1e-4) << i << ", " << j;
      }
  }
}

// The rows of one large product, taken apart in every way a server batches them.
TEST_P(Matmul, BitsDependNeitherOnBatchNorOnThreads) {
  constexpr int64_t kT = 512;
  for (const DType dtype : kDTypes) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{149, 321}, {64, 576}}) {
      const Weights w = random_weights(dtype, n, k, 21);
      const Problem all(kT, w, true, false, 22);
      const std::vector<float> whole = all.run(1);
      for (const int threads : {2, 3}) EXPECT_EQ(bits_of(all.run(threads)), bits_of(whole)) << threads;
      for (const int64_t rows : {1, 2, 4, 7, 8, 9, 31, 100}) {
        std::vector<float> parts = all.out;
        const auto stream = Stream::cpu(1 + static_cast<int>(rows % 3));
        for (int64_t t0 = 0; t0 < kT; t0 += rows) {
          MatmulArgs args = all.args(parts);
          args.x += t0 * args.x_stride;
          args.out += t0 * args.out_stride;
          args.t = std::min(rows, kT - t0);
          matmul(*stream, args);
        }
        EXPECT_EQ(bits_of(parts), bits_of(whole)) << rows << " rows at a time, " << dtype_name(dtype);
      }
    }
  }
}

TEST_P(Matmul, OneRowsNanStaysInItsRow) {
  const Weights w = random_weights(DType::kBF16, 64, 48, 31);
  for (const int64_t t : {4, 40}) {
    Problem p(t, w, false, false, 32);
    const std::vector<float> clean = p.run(1);
    p.x[static_cast<size_t>(1 + 2 * p.x_stride + 5)] = kNan;
    const std::vector<float> got = p.run(1);
    for (int64_t i = 0; i < t; ++i)
      for (int64_t j = 0; j < 64; ++j) {
        const auto at = static_cast<size_t>(1 + i * p.out_stride + j);
        if (i == 2) {
          EXPECT_TRUE(std::isnan(got[at]));
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(got[at]), std::bit_cast<uint32_t>(clean[at]));
        }
      }
  }
}

// oneDNN's own f32 product of the same rounded weights.
std::vector<float> onednn_product(const std::vector<float>& x, const std::vector<float>& w, int64_t t,
                                  int64_t n, int64_t k) {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc x_desc({t, k}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc w_desc({k, n}, memory::data_type::f32, memory::format_tag::ba);
  const memory::desc out_desc({t, n}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x_desc, w_desc, out_desc), engine);
  std::vector<float> out(static_cast<size_t>(t * n));
  std::vector<float> x_copy = x;
  std::vector<float> w_copy = w;
  dnnl::matmul(desc).execute(stream, {{DNNL_ARG_SRC, memory(x_desc, engine, x_copy.data())},
                                      {DNNL_ARG_WEIGHTS, memory(w_desc, engine, w_copy.data())},
                                      {DNNL_ARG_DST, memory(out_desc, engine, out.data())}});
  stream.wait();
  return out;
}

TEST_P(Matmul, AgreesWithOneDnn) {
  for (const DType dtype : kDTypes)
    for (const int64_t t : {1, 8, 63})
      for (const auto& [n, k] : {std::pair<int64_t, int64_t>{100, 77}, {192, 576}, {33, 2048}}) {
        const Weights w = random_weights(dtype, n, k, 41);
        const std::vector<float> x = random_floats(static_cast<size_t>(t * k), 42);
        std::vector<float> got(static_cast<size_t>(t * n));
        const auto stream = Stream::cpu(2);
        matmul(*stream,
               {.x = x.data(), .x_stride = k, .t = t, .w = w.packed, .out = got.data(), .out_stride = n});
        const std::vector<float> want = onednn_product(x, ref::unpack(w.packed), t, n, k);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want[i], 2e-4) << i << " of [" << t << ", " << n << ", " << k << "]";
      }
}

TEST(MatmulContract, WorkspaceHoldsWhatIsUsed) {
  for (const int threads : {1, 2}) {
    const auto stream = Stream::cpu(threads);
    const Weights w = random_weights(DType::kBF16, 300, 700, 51);
    const Problem p(500, w, false, false, 52);
    std::vector<float> out = p.out;
    matmul(*stream, p.args(out));
    EXPECT_LE(static_cast<int64_t>(stream->scratch_bytes()), matmul_workspace_bytes(threads, 500, 700));
  }
}

TEST(MatmulContractDeathTest, BadArgumentsAreBugs) {
  const Weights w = random_weights(DType::kF32, 16, 8, 61);
  const auto stream = Stream::cpu(1);
  std::vector<float> x(16), out(32);
  MatmulArgs args{.x = x.data(), .x_stride = 7, .t = 2, .w = w.packed, .out = out.data(), .out_stride = 16};
  EXPECT_DEATH(matmul(*stream, args), "strides");
  args.x_stride = 8;
  args.w.dtype = DType::kI8;
  EXPECT_DEATH(matmul(*stream, args), "weights in int8");
  const int32_t id = 16;
  EXPECT_DEATH(embedding(*stream, w.packed, &id, 1, out.data()), "id 16 of 16");
}

}  // namespace
}  // namespace lariat
