// A tokenizer.json split pattern: Oniguruma's syntax, run by PCRE2 (JIT, UTF, UCP).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/byte_range.h"

namespace lariat {

// The same language in PCRE2's syntax. The subset is a closed list; what means something else in PCRE2 or can
// make a search unbounded (back references, recursion, callouts, \w, anchors, nested classes) is
// kUnsupported.
Result<std::string> translate_regex(std::string_view oniguruma);

class SplitRegex {
 public:
  static Result<SplitRegex> compile(std::string_view oniguruma);
  // Matches exactly this text.
  static Result<SplitRegex> literal(std::string_view text);

  // Appends the non-empty matches in `text` (valid UTF-8), leftmost first, disjoint, to `out`.
  // kResourceExhausted if the pattern backtracks beyond the limits. Linear for the patterns of real
  // tokenizers, without stack use per character. Thread-safe.
  Status find_all(std::string_view text, std::vector<ByteRange>& out) const;

 private:
  struct Program;
  explicit SplitRegex(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  static Result<SplitRegex> build(const std::string& pcre, bool is_literal);

  std::shared_ptr<const Program> program_;
};

}  // namespace lariat
