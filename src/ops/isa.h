// The instruction set that this process's CPU kernels run on, chosen once at start.
#pragma once

namespace lariat {

// "avx512", "avx2", "sse4" or "neon"; "scalar" where none of them is compiled.
const char* isa_name();

}  // namespace lariat
