// The commands, each in its own cmd_*.cc. Returns the exit code; an error becomes 2, 3 or 1 by its kind.
#pragma once

#include "app/option_values.h"
#include "base/result.h"

namespace lariat {

Result<int> cmd_serve(const OptionValues& values);
Result<int> cmd_run(const OptionValues& values);
Result<int> cmd_verify(const OptionValues& values);
Result<int> cmd_bench(const OptionValues& values);
Result<int> cmd_plan(const OptionValues& values);
Result<int> cmd_tokenize(const OptionValues& values);
Result<int> cmd_inspect(const OptionValues& values);
Result<int> cmd_worker(const OptionValues& values);

}  // namespace lariat
