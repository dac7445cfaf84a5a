#include "tokenizer/pre_tokenizer.h"

namespace lariat {
namespace {

struct Part {
  ByteRange range;
  bool match;
};

// The pieces that one piece's parts (in order, covering it) become.
void apply_behavior(const std::vector<Part>& parts, SplitBehavior behavior, std::vector<ByteRange>& out) {
  const size_t first = out.size();
  const auto join_previous = [&](const Part& p) { out.back().end = p.range.end; };
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    const bool has_previous = out.size() > first;
    const bool after_match = i > 0 && parts[i - 1].match;
    bool join = false;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (p.match) continue;
        break;
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kMergedWithPrevious:
        join = p.match && !after_match && has_previous;
        break;
      case SplitBehavior::kMergedWithNext:
        join = !p.match && after_match;
        break;
      case SplitBehavior::kContiguous:
        join = has_previous && parts[i - 1].match == p.match;
        break;
    }
    if (join) {
      join_previous(p);
    } else {
      out.push_back(p.range);
    }
  }
}

Status apply(const SplitStep& step, std::string_view text, std::vector<ByteRange>& pieces) {
  std::vector<ByteRange> out, matches;
  std::vector<Part> parts;
  for (const ByteRange& piece : pieces) {
    matches.clear();
    parts.clear();
    LARIAT_RETURN_IF_ERROR(step.regex.find_all(text.substr(piece.begin, piece.size()), matches));
    size_t done = 0;
    const auto put = [&](size_t begin, size_t end, bool match) {
      if (begin < end) parts.push_back({{piece.begin + begin, piece.begin + end}, match != step.invert});
    };
    for (const ByteRange& m : matches) {
      put(done, m.begin, false);
      put(m.begin, m.end, true);
      done = m.end;
    }
    put(done, piece.size(), false);
    apply_behavior(parts, step.behavior, out);
  }
  pieces = std::move(out);
  return Ok{};
}

void apply_prefix_space(PreTokenizer::Words& words) {
  std::string text;
  text.reserve(words.text.size() + words.ranges.size());
  for (ByteRange& r : words.ranges) {
    const std::string_view piece = words.text.substr(r.begin, r.size());
    r.begin = text.size();
    if (!piece.starts_with(' ')) text += ' ';
    text += piece;
    r.end = text.size();
  }
  words.storage = std::move(text);
  words.text = words.storage;
}

}  // namespace

const std::string_view PreTokenizer::kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Status PreTokenizer::split(std::string_view text, Words& out) const {
  out.text = text;
  out.ranges.clear();
  if (!text.empty()) out.ranges.push_back({0, text.size()});
  for (const auto& step : steps_) {
    if (const auto* s = std::get_if<SplitStep>(&step)) {
      LARIAT_RETURN_IF_ERROR(apply(*s, out.text, out.ranges));
    } else {
      apply_prefix_space(out);
    }
  }
  return Ok{};
}

}  // namespace lariat
