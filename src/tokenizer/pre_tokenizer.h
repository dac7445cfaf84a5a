// Text to words: the pre_tokenizer of tokenizer.json as a list of steps.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokenizer/byte_range.h"
#include "tokenizer/split_regex.h"

namespace lariat {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  SplitRegex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what the pattern does not match is the delimiter
};

// ByteLevel's add_prefix_space: every piece so far that does not begin with a space gets one.
struct PrefixSpaceStep {};

class PreTokenizer {
 public:
  // GPT-2's pattern, which ByteLevel applies with use_regex.
  static const std::string_view kGpt2Pattern;

  void add(std::variant<SplitStep, PrefixSpaceStep> step) { steps_.push_back(std::move(step)); }

  struct Words {
    std::string_view text;  // what the ranges refer to: the input, or `storage` if a step inserted characters
    std::vector<ByteRange> ranges;
    std::string storage;
  };
  // Words in order; empty text has none. The input must outlive `out`. Errors of SplitRegex::find_all.
  Status split(std::string_view text, Words& out) const;

 private:
  std::vector<std::variant<SplitStep, PrefixSpaceStep>> steps_;
};

}  // namespace lariat
