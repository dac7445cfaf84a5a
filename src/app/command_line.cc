#include "app/command_line.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <deque>

#include "app/command_table.h"
#include "app/version.h"
#include "base/file.h"

namespace lariat {
namespace {

// CLI11 writes into these; their addresses must not move.
struct Storage {
  const OptionSpec* spec = nullptr;
  CLI::Option* option = nullptr;
  std::string text;
  bool on = false;
};

struct Command {
  const CommandSpec* spec = nullptr;
  CLI::App* app = nullptr;
  std::deque<Storage> options;
  std::string model;
  CLI::Option* model_option = nullptr;
  std::string text;
  CLI::Option* text_option = nullptr;
};

void declare(CLI::App& root, const CommandSpec& spec, Command& command) {
  command.spec = &spec;
  command.app = root.add_subcommand(spec.name, spec.help);
  command.app->allow_extras();  // reported with the other faults, see collect()
  if (spec.hidden) command.app->group("");
  if (*spec.examples) command.app->footer(std::string("Examples:\n") + spec.examples);
  if (spec.takes_model) {
    command.model_option = command.app->add_option(
        "MODEL", command.model, "Folder in Hugging Face layout, or a name; needle-5m is built in");
  }
  if (spec.text_argument) command.text_option = command.app->add_option(spec.text_argument, command.text);
  for (const auto& group : spec.groups) {
    for (const OptionSpec& option : group) {
      Storage& s = command.options.emplace_back();
      s.spec = &option;
      const std::string flag = option.letter ? fmt::format("-{},--{}", option.letter, option.flag)
                                             : fmt::format("--{}", option.flag);
      if (option.value) {
        s.option = command.app->add_option(flag, s.text, option.help)->type_name(option.value);
      } else {
        s.option = command.app->add_flag(flag, s.on, option.help);
      }
    }
  }
}

std::string toml_text(const toml::node& node, bool& usable) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  if (const auto* i = node.as_integer()) return std::to_string(i->get());
  if (const auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (const auto* list = node.as_array()) {
    std::string joined;
    for (const auto& item : *list) joined += (joined.empty() ? "" : ",") + toml_text(item, usable);
    return joined;
  }
  usable = false;
  return {};
}

// Every key must be an option of this command; one that is not becomes a misfit.
void read_config(const std::string& path, const Command& command, OptionValues& values) {
  const auto text = read_file(path, 1 << 20);
  if (!text.ok()) return values.add_misfit("--config: " + text.error().message);
  toml::table table;
  try {
    table = toml::parse(*text, path);
  } catch (const toml::parse_error& e) {
    return values.add_misfit(
        fmt::format("{}:{}:{}: {}", path, e.source().begin.line, e.source().begin.column, e.description()));
  }
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto known = std::find_if(command.options.begin(), command.options.end(),
                                    [&](const Storage& s) { return name == s.spec->flag; });
    bool usable = true;
    const std::string value = toml_text(node, usable);
    if (name != "model" && (known == command.options.end() || name == "config")) {
      values.add_misfit(fmt::format("{}: '{}' is no option of {}", path, name, command.spec->name));
    } else if (!usable) {
      values.add_misfit(fmt::format("{}: {}: a table or date is no value of an option", path, name));
    } else {
      values.set(name, value, path + ": " + name);
    }
  }
}

CommandLine early(std::string text, int code) {
  CommandLine line;
  line.exit = {std::move(text), code};
  return line;
}

CommandLine collect(const Command& command) {
  ParsedCommand parsed;
  parsed.name = command.spec->name;
  if (command.model_option && command.model_option->count())
    parsed.values.set("model", command.model, "MODEL");
  if (command.text_option && command.text_option->count()) {
    parsed.values.set("text", command.text, command.spec->text_argument);
  }
  for (const Storage& s : command.options) {
    if (!s.option->count()) continue;
    parsed.values.set(s.spec->flag, s.spec->value ? s.text : "true", std::string("--") + s.spec->flag);
  }
  if (const auto extras = command.app->remaining(); !extras.empty()) {
    parsed.values.add_misfit(
        fmt::format("not expected: {}; see lariat {} --help", fmt::join(extras, " "), command.spec->name));
  }
  if (const auto* config = parsed.values.find("config")) read_config(config->text, command, parsed.values);
  CommandLine line;
  line.command = std::move(parsed);
  return line;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CLI::App root("Lariat serves language models on contexts that do not fit one device.", "lariat");
  root.set_version_flag("--version", std::string("lariat ") + kVersion);
  root.require_subcommand(1);
  root.footer("'lariat COMMAND --help' shows a command's options and examples.");
  std::deque<Command> commands;
  for (const CommandSpec& spec : command_table()) declare(root, spec, commands.emplace_back());
  try {
    root.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    for (const Command& c : commands) {
      if (c.app->parsed()) return early(c.app->help("lariat"), 0);
    }
    return early(root.help(), 0);
  } catch (const CLI::CallForVersion&) {
    return early(std::string("lariat ") + kVersion + "\n", 0);
  } catch (const CLI::ParseError& e) {
    std::string help = "see lariat --help";
    for (const Command& c : commands) {
      if (c.app->parsed()) help = fmt::format("see lariat {} --help", c.spec->name);
    }
    return early(fmt::format("lariat: {}; {}\n", e.what(), help), 2);
  }
  for (const Command& c : commands) {
    if (c.app->parsed()) return collect(c);
  }
  return early(root.help(), 2);
}

}  // namespace lariat
