// Where every thread of this process is, as text: function names and source lines.
#pragma once

#include <string>

namespace lariat {

// One paragraph a thread, the caller's first. Each thread is interrupted by a real-time signal and walks its
// own stack, so spinning and blocked threads answer alike; one that does not within half a second
// (uninterruptible in the kernel, signal blocked) is named without frames. Takes the time of reading the
// debug information of every loaded object: for a process about to die, not for a running one. Not from a
// signal handler.
std::string dump_all_stacks();

}  // namespace lariat
