// Element types as files and kernels name them, with the scalar conversions that define each rounding.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lariat {

enum class DType : uint8_t { kF32, kBF16, kF16, kI8, kU8, kI32, kI64, kBool };

// Bytes of one element.
size_t dtype_size(DType dtype);
// "f32", "bf16", ...: the spelling of flags and messages.
std::string_view dtype_name(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

using Bf16 = uint16_t;  // raw bits
using F16 = uint16_t;   // raw bits

inline float bf16_to_f32(Bf16 bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest even; NaN stays NaN (quiet).
inline Bf16 f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Bf16>((bits >> 16) | 0x40u);
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE binary16, round to nearest even, overflow to infinity, subnormals kept.
float f16_to_f32(F16 bits);
F16 f32_to_f16(float value);

}  // namespace lariat
