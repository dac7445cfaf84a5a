// The lariat binary: one command a process.
#include <fmt/core.h>

#include <csignal>
#include <span>
#include <string_view>
#include <utility>

#include "app/command_line.h"
#include "app/commands.h"
#include "base/check.h"

namespace {

using lariat::Errc;
using lariat::OptionValues;
using lariat::Result;

constexpr std::pair<std::string_view, Result<int> (*)(const OptionValues&)> kCommands[] = {
    {"serve", lariat::cmd_serve},     {"run", lariat::cmd_run},       {"verify", lariat::cmd_verify},
    {"bench", lariat::cmd_bench},     {"plan", lariat::cmd_plan},     {"tokenize", lariat::cmd_tokenize},
    {"inspect", lariat::cmd_inspect}, {"worker", lariat::cmd_worker},
};

// docs/design.md §7: 2 bad usage or configuration, 3 a resource refusal, 1 everything else.
int exit_code(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
    case Errc::kNotFound:
    case Errc::kUnsupported:
    case Errc::kCorruptData:
      return 2;
    case Errc::kResourceExhausted:
      return 3;
    default:
      return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const lariat::CommandLine line = lariat::parse_command_line(argc, argv);
  if (!line.command) {
    fmt::print(line.exit.code == 0 ? stdout : stderr, "{}", line.exit.text);
    return line.exit.code;
  }
  for (const auto& [name, run] : kCommands) {
    if (line.command->name != name) continue;
    const Result<int> code = run(line.command->values);
    if (code.ok()) return *code;
    fmt::print(stderr, "lariat {}: {}\n", name, code.error().message);
    return exit_code(code.error().code);
  }
  LARIAT_CHECK(false, "command {} is in the table of options and not in that of functions",
               line.command->name);
}
