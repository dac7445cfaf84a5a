// Template source to tokens, with Jinja's white space control (trim_blocks and lstrip_blocks on, as chat
// templates are rendered).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lariat::jinja {

struct Token {
  enum Kind {
    kText,
    kBlockBegin,
    kBlockEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;  // kString: unescaped
  int line;
};

// Ends with kEnd. Throws Fault (kCorruptData) with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lariat::jinja
