// The commands and options of docs/design.md §7 as data: one table serves parsing, help and the config file.
#pragma once

#include <span>
#include <string_view>

namespace lariat {

struct OptionSpec {
  const char* flag;   // without dashes
  const char* value;  // placeholder; nullptr for a switch
  const char* help;
  char letter = 0;  // short form, or 0
};

struct CommandSpec {
  const char* name;
  const char* help;
  bool takes_model;
  const char* text_argument;  // a second positional argument's name, or nullptr
  std::span<const std::span<const OptionSpec>> groups;
  const char* examples;
  bool hidden = false;
};

std::span<const CommandSpec> command_table();

}  // namespace lariat
