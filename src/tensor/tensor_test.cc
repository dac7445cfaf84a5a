// Conversions over every bit pattern, and buffers seen from a second mapping.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/stream.h"

namespace lariat {
namespace {

// The compiler's own half type is the reference; x86 GCC and clang both have it.
TEST(DType, F16EveryPattern) {
  for (uint32_t b = 0; b < 65536; ++b) {
    _Float16 h;
    const auto bits = static_cast<uint16_t>(b);
    std::memcpy(&h, &bits, 2);
    const float want = static_cast<float>(h);
    const float got = f16_to_f32(bits);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << b;
      continue;
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(want), std::bit_cast<uint32_t>(got)) << b;
    EXPECT_EQ(f32_to_f16(got), bits);
  }
}

TEST(DType, F16RoundsAsTheCompilerDoes) {
  for (uint64_t b = 0; b < (uint64_t{1} << 32); b += 9973) {
    const float f = std::bit_cast<float>(static_cast<uint32_t>(b));
    const _Float16 h = static_cast<_Float16>(f);
    uint16_t want;
    std::memcpy(&want, &h, 2);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f))));
    } else {
      EXPECT_EQ(f32_to_f16(f), want) << f;
    }
  }
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even below
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, even above
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  for (uint32_t b = 0; b < 65536; ++b) {
    const float f = bf16_to_f32(static_cast<Bf16>(b));
    if (std::isnan(f)) continue;
    EXPECT_EQ(f32_to_bf16(f), b);
  }
}

TEST(Buffer, SharedPagesAreTheSamePages) {
  auto a = Buffer::allocate_shared(10000, "test");
  ASSERT_TRUE(a.ok()) << a.error().message;
  a->as<int32_t>()[17] = 4711;
  auto b = Buffer::map_shared(a->fd(), a->size());
  ASSERT_TRUE(b.ok()) << b.error().message;
  EXPECT_EQ(b->as<const int32_t>()[17], 4711);
  a->as<int32_t>()[17] = 4712;
  EXPECT_EQ(b->as<const int32_t>()[17], 4712);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data()) % Buffer::kAlign, 0u);
}

TEST(Buffer, RefusesTheImpossible) {
  const auto r = Buffer::allocate(size_t{1} << 62);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, Errc::kResourceExhausted);
}

TEST(Stream, ScratchGrowsAndIsCounted) {
  auto s = Stream::cpu(2);
  EXPECT_EQ(s->scratch_bytes(), 0u);
  std::memset(s->scratch(1, 100), 1, 100);
  std::memset(s->shared_scratch(300), 1, 300);
  EXPECT_EQ(s->scratch_bytes(), 400u);
  EXPECT_EQ(s->scratch(1, 50), s->scratch(1, 100));
}

}  // namespace
}  // namespace lariat
