// What this build calls itself.
#pragma once

namespace lariat {

inline constexpr const char* kVersion = LARIAT_VERSION;

}  // namespace lariat
