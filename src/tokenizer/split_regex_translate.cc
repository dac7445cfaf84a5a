// Oniguruma's regex syntax to PCRE2's, for the subset that split patterns use.
#include <fmt/core.h>

#include <cctype>

#include "tokenizer/split_regex.h"
#include "tokenizer/utf8.h"

namespace lariat {
namespace {

constexpr size_t kPatternBytesMax = 16 << 10;

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    if (in_.size() > kPatternBytesMax) {
      return make_error(Errc::kUnsupported,
                        fmt::format("regex of {} bytes (limit {})", in_.size(), kPatternBytesMax));
    }
    if (!utf8_valid(in_) || in_.find('\0') != in_.npos) {
      return make_error(Errc::kCorruptData, "regex holds invalid UTF-8 or NUL");
    }
    while (at_ < in_.size()) LARIAT_RETURN_IF_ERROR(step());
    if (in_class_) return refuse("an unterminated class");
    return out_;
  }

 private:
  Error refuse(std::string_view what) const {
    return make_error(Errc::kUnsupported,
                      fmt::format("regex uses {} at byte {}, which is not implemented", what, at_));
  }
  bool next_is(std::string_view s) const { return in_.substr(at_).starts_with(s); }
  Status take(size_t n) {
    out_ += in_.substr(at_, n);
    at_ += n;
    return Ok{};
  }

  Status step() {
    const char c = in_[at_];
    if (c == '\\') return escape();
    if (in_class_) return class_member(c);
    switch (c) {
      case '[':
        in_class_ = true;
        class_empty_ = true;
        return take(next_is("[^") ? 2 : 1);
      case '(':
        return group();
      case '^':
      case '$':
        return refuse(std::string("the anchor ") + c);
      case '{':
        return repeat();
      default:
        return take(1);
    }
  }

  Status class_member(char c) {
    if (c == '[') return refuse("a class inside a class");
    if (c == ']' && class_empty_) return refuse("an empty class");
    if (next_is("&&")) return refuse("a class intersection");
    if (c == ']') in_class_ = false;
    class_empty_ = false;
    return take(1);
  }

  Status group() {
    if (next_is("(*")) return refuse("a verb");
    if (!next_is("(?")) return take(1);
    for (const std::string_view head : {"(?:", "(?=", "(?!", "(?i:", "(?<=", "(?<!", "(?>"}) {
      if (next_is(head)) return take(head.size());
    }
    return refuse("a group of the kind " + std::string(in_.substr(at_, 3)));
  }

  // {n}, {n,}, {n,m}; Oniguruma reads a further + as a second repetition and PCRE2 as possessive.
  Status repeat() {
    const size_t close = in_.find('}', at_);
    const std::string_view body = close == in_.npos ? "" : in_.substr(at_ + 1, close - at_ - 1);
    if (body.empty() || !std::isdigit(static_cast<unsigned char>(body[0])) ||
        body.find_first_not_of("0123456789,") != body.npos) {
      return refuse("a brace that is no {n,m}");
    }
    if (close + 1 < in_.size() && in_[close + 1] == '+') return refuse("{n,m}+");
    return take(close + 1 - at_);
  }

  Status escape() {
    if (at_ + 1 >= in_.size()) return refuse("a lone backslash");
    class_empty_ = false;
    const char c = in_[at_ + 1];
    switch (c) {
      case 's':  // PCRE2's own \s takes U+180E too, which Unicode no longer counts as white space
      case 'S':
        out_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
        at_ += 2;
        return Ok{};
      case 'p':
      case 'P':
        return property();
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'd':
      case 'D':
        return take(2);
      case 'x':
      case 'u':
        return code_point();
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80) {
          return refuse(std::string("the escape \\") + c);
        }
        return take(2);
    }
  }

  // General categories mean the same in both; scripts and other names are not needed by any tokenizer seen.
  Status property() {
    const size_t close = in_.find('}', at_);
    if (close == in_.npos || !in_.substr(at_ + 2).starts_with('{'))
      return refuse("a property without braces");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) name.remove_prefix(1);
    static constexpr std::string_view kMajor = "LMNPSZC";
    static constexpr std::string_view kMinor = "ulmotncdepfskj";
    const bool known =
        (name.size() == 1 && kMajor.find(name[0]) != kMajor.npos) ||
        (name.size() == 2 && kMajor.find(name[0]) != kMajor.npos && kMinor.find(name[1]) != kMinor.npos) ||
        name == "Han" || name == "Hiragana" || name == "Katakana" || name == "Hangul";
    if (!known) return refuse("the property " + std::string(name.substr(0, 40)));
    return take(close + 1 - at_);
  }

  // \x41, \x{2000}, \u2000
  Status code_point() {
    size_t from = at_ + 2, digits = in_[at_ + 1] == 'x' ? 2 : 4, after = from + digits;
    if (in_[at_ + 1] == 'x' && in_.substr(from).starts_with('{')) {
      const size_t close = in_.find('}', from);
      if (close == in_.npos) return refuse("an unterminated \\x{");
      digits = close - ++from;
      after = close + 1;
    }
    if (digits < 1 || digits > 6 || from + digits > in_.size()) return refuse("a malformed code point");
    for (const char c : in_.substr(from, digits)) {
      if (!std::isxdigit(static_cast<unsigned char>(c))) return refuse("a malformed code point");
    }
    out_ += fmt::format("\\x{{{}}}", in_.substr(from, digits));
    at_ = after;
    return Ok{};
  }

  const std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  bool in_class_ = false;
  bool class_empty_ = false;
};

}  // namespace

Result<std::string> translate_regex(std::string_view oniguruma) {
  return Translator(oniguruma).run();
}

}  // namespace lariat
