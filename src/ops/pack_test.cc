// Packing and embedding: every pair of types, slices, fused sources, misaligned files, zero padding.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "ops/matmul.h"
#include "ops/random_test.h"
#include "ops/ref/matmul.h"

namespace lariat {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

float rounded_to(DType dtype, float v) {
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(v));
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(v));
  return v;
}

// Values as a file of `dtype` stores them, one byte off any alignment.
std::vector<std::byte> stored(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * dtype_size(dtype) + 1);
  for (size_t i = 0; i < values.size(); ++i) {
    std::byte* at = bytes.data() + 1 + i * dtype_size(dtype);
    const uint16_t half = dtype == DType::kBF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
    if (dtype == DType::kF32) {
      std::memcpy(at, &values[i], 4);
    } else {
      std::memcpy(at, &half, 2);
    }
  }
  return bytes;
}

Buffer poisoned(int64_t bytes) {
  Buffer buffer = std::move(Buffer::allocate(static_cast<size_t>(bytes))).value();
  std::memset(buffer.data(), 0xff, buffer.size());
  return buffer;
}

TEST(Pack, SlicesConvertEveryTypeAndZeroThePadding) {
  constexpr int64_t kN = 45, kK = 300, kRow0 = 3, kRows = 37, kCol0 = 11, kCols = 257;
  const std::vector<float> values = random_floats(kN * kK, 1, 3.0f);
  for (const DType from : kDTypes)
    for (const DType to : kDTypes)
      for (const int threads : {1, 3}) {
        const auto stream = Stream::cpu(threads);
        const std::vector<std::byte> file = stored(from, values);
        Buffer memory = poisoned(packed_bytes(to, kRows, kCols));
        pack_rows(*stream, {.src = {file.data() + 1, from, {kN, kK}},
                            .row0 = kRow0,
                            .rows = kRows,
                            .col0 = kCol0,
                            .cols = kCols,
                            .dst = memory.data(),
                            .dtype = to,
                            .dst_row0 = 0});
        // Read as 48 rows, to see the padding too.
        const std::vector<float> got = ref::unpack({.data = memory.data(), .dtype = to, .n = 48, .k = kCols});
        for (int64_t n = 0; n < 48; ++n)
          for (int64_t k = 0; k < kCols; ++k) {
            const float value = n < kRows ? values[static_cast<size_t>((kRow0 + n) * kK + kCol0 + k)] : 0.0f;
            const float want = rounded_to(to, rounded_to(from, value));
            ASSERT_EQ(got[static_cast<size_t>(n * kCols + k)], want)
                << dtype_name(from) << " to " << dtype_name(to) << " at " << n << ", " << k;
          }
      }
}

TEST(Pack, SameTypeKeepsEveryBitPattern) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto stream = Stream::cpu(1);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Buffer memory = poisoned(packed_bytes(dtype, 16, 4096));
    pack_rows(*stream, {.src = {all.data(), dtype, {16, 4096}},
                        .rows = 16,
                        .cols = 4096,
                        .dst = memory.data(),
                        .dtype = dtype});
    const auto got = memory.as<uint16_t>();
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(got[i % 4096 * 16 + i / 4096], all[i]);
  }
}

// q | k | v in one matrix, with row counts that end inside a panel.
TEST(Pack, SourcesContinueInsideAPanel) {
  constexpr int64_t kK = 19;
  const std::vector<int64_t> rows = {21, 5, 1, 16, 30};
  const auto stream = Stream::cpu(2);
  const int64_t total = 73;
  Buffer memory = poisoned(packed_bytes(DType::kF32, total, kK));
  std::vector<float> want;
  int64_t at = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<float> part =
        random_floats(static_cast<size_t>(rows[i] * kK), static_cast<uint32_t>(i));
    pack_rows(*stream, {.src = {part.data(), DType::kF32, {rows[i], kK}},
                        .rows = rows[i],
                        .cols = kK,
                        .dst = memory.data(),
                        .dtype = DType::kF32,
                        .dst_row0 = at});
    at += rows[i];
    want.insert(want.end(), part.begin(), part.end());
  }
  ASSERT_EQ(at, total);
  want.resize(80 * kK, 0.0f);
  EXPECT_EQ(ref::unpack({.data = memory.data(), .dtype = DType::kF32, .n = 80, .k = kK}), want);
}

TEST(Embedding, ReadsRowsOfThePackedTable) {
  constexpr int64_t kV = 50, kK = 33;
  const std::vector<float> values = random_floats(kV * kK, 5);
  for (const DType dtype : kDTypes) {
    const auto stream = Stream::cpu(2);
    Buffer memory = poisoned(packed_bytes(dtype, kV, kK));
    pack_rows(*stream, {.src = {values.data(), DType::kF32, {kV, kK}},
                        .rows = kV,
                        .cols = kK,
                        .dst = memory.data(),
                        .dtype = dtype});
    const std::vector<int32_t> ids = {0, 49, 17, 17, 15, 16, 31};
    std::vector<float> out(ids.size() * kK, -1.0f);
    const PackedMatrix table{.data = memory.data(), .dtype = dtype, .n = kV, .k = kK};
    embedding(*stream, table, ids.data(), static_cast<int64_t>(ids.size()), out.data());
    for (size_t i = 0; i < ids.size(); ++i)
      for (size_t k = 0; k < kK; ++k)
        ASSERT_EQ(out[i * kK + k], rounded_to(dtype, values[static_cast<size_t>(ids[i]) * kK + k]));
    embedding(*stream, table, nullptr, 0, nullptr);
  }
}

}  // namespace
}  // namespace lariat
