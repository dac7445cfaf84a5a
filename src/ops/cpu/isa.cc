// Names the target that Highway's dispatch has chosen.
#include "ops/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/isa.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {
namespace {

const char* target_isa() {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return "avx512";
#elif HWY_TARGET == HWY_AVX2
  return "avx2";
#elif HWY_TARGET == HWY_SSE4
  return "sse4";
#elif HWY_TARGET == HWY_NEON
  return "neon";
#else
  return "scalar";
#endif
}

}  // namespace
}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
namespace cpu {
HWY_EXPORT(target_isa);
const char* chosen_isa() {
  return HWY_DYNAMIC_DISPATCH(target_isa)();
}
}  // namespace cpu

const char* isa_name() {
  return cpu::chosen_isa();
}
}  // namespace lariat
#endif
