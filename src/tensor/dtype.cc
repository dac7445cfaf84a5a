#include "tensor/dtype.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace lariat {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 8> kNames{{{DType::kF32, "f32"},
                                                                    {DType::kBF16, "bf16"},
                                                                    {DType::kF16, "f16"},
                                                                    {DType::kI8, "int8"},
                                                                    {DType::kU8, "u8"},
                                                                    {DType::kI32, "i32"},
                                                                    {DType::kI64, "i64"},
                                                                    {DType::kBool, "bool"}}};

}  // namespace

size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return 1;
    case DType::kI64:
      return 8;
  }
  LARIAT_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

std::string_view dtype_name(DType dtype) {
  for (const auto& [d, name] : kNames) {
    if (d == dtype) return name;
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const auto& [d, n] : kNames) {
    if (n == name) return d;
  }
  return std::nullopt;
}

float f16_to_f32(F16 bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Zero and subnormals: mantissa * 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;
  return sign ? -magnitude : magnitude;
}

F16 f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<F16>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<F16>(sign | 0x7c00u);  // rounds past 65504
  if (magnitude <
      0x38800000u) {  // below 2^-14: adding 0.5 aligns the subnormal's last bit with f32's, rounding even
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<F16>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<F16>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace lariat
