// Flags to OptionValues: which command takes which options, their help and the config file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/option_values.h"
#include "base/result.h"

namespace lariat {

struct ParsedCommand {
  std::string name;  // "serve", "verify", ...
  OptionValues values;
};

// What the process should do at once instead of running a command: print `text` and exit with `code`.
struct EarlyExit {
  std::string text;
  int code = 0;
};

struct CommandLine {
  std::optional<ParsedCommand> command;
  EarlyExit exit;  // if there is no command (--help, --version, bad usage)
};

// Reads argv and the TOML file of --config (flags win). Bad usage is an EarlyExit with code 2.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace lariat
