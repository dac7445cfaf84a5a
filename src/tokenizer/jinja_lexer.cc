#include "tokenizer/jinja_lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "tokenizer/jinja_value.h"
#include "tokenizer/utf8.h"

namespace lariat::jinja {
namespace {

bool is_blank(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}
bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}
bool is_digit_char(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

std::string one_newline_kind(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(one_newline_kind(source)), s_(source_) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) {
      const size_t open = next_tag();
      const size_t begin = at_;
      if (open == s_.npos) {
        put(Token::kText, std::string(s_.substr(begin)));
        break;
      }
      put_data(begin, open);
      advance(open + 2 + (sign_at(open + 2) ? 1 : 0));
      switch (s_[open + 1]) {
        case '#':
          comment();
          break;
        case '%':
          if (!raw_block()) code(Token::kBlockBegin, Token::kBlockEnd, "%}");
          break;
        default:
          code(Token::kOutputBegin, Token::kOutputEnd, "}}");
      }
      line_starting_ = at_ > 0 && s_[at_ - 1] == '\n';
    }
    put(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void bad(std::string what) const {
    fault(Errc::kCorruptData, fmt::format("chat template, line {}: {}", line_, what));
  }
  void put(Token::Kind kind, std::string text) {
    if (kind == Token::kText && text.empty()) return;
    tokens_.push_back({kind, std::move(text), line_});
  }
  void advance(size_t to) {
    line_ += static_cast<int>(
        std::count(s_.begin() + static_cast<ptrdiff_t>(at_), s_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  bool sign_at(size_t i) const { return i < s_.size() && (s_[i] == '-' || s_[i] == '+'); }
  bool next_is(std::string_view what) const { return s_.substr(at_).starts_with(what); }

  size_t next_tag() const {
    for (size_t i = at_; (i = s_.find('{', i)) != s_.npos; ++i) {
      if (i + 1 < s_.size() && (s_[i + 1] == '{' || s_[i + 1] == '%' || s_[i + 1] == '#')) return i;
    }
    return s_.npos;
  }

  // Text before a tag, less what the tag's sign or lstrip_blocks takes from its end.
  void put_data(size_t begin, size_t open) {
    std::string_view data = s_.substr(begin, open - begin);
    const char sign = sign_at(open + 2) ? s_[open + 2] : ' ';
    if (sign == '-') {
      while (!data.empty() && is_blank(data.back())) data.remove_suffix(1);
    } else if (sign != '+' && s_[open + 1] != '{') {
      const size_t newline = data.rfind('\n');
      const size_t line_begin = newline == data.npos ? 0 : newline + 1;
      const std::string_view tail = data.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && std::all_of(tail.begin(), tail.end(), is_blank)) {
        data = data.substr(0, line_begin);
      }
    }
    put(Token::kText, std::string(data));
  }

  // Behind "-%}" all white space goes; behind "%}" (not "+%}", not "}}") one newline.
  void after_tag(char sign, bool trims_newline) {
    size_t end = at_;
    if (sign == '-') {
      while (end < s_.size() && is_blank(s_[end])) ++end;
    } else if (sign != '+' && trims_newline && end < s_.size() && s_[end] == '\n') {
      ++end;
    }
    advance(end);
  }

  void comment() {
    const size_t close = s_.find("#}", at_);
    if (close == s_.npos) bad("a comment is not closed");
    const char sign = close > at_ && sign_at(close - 1) ? s_[close - 1] : ' ';
    advance(close + 2);
    after_tag(sign, true);
  }

  size_t skip_blanks(size_t i) const {
    while (i < s_.size() && is_blank(s_[i])) ++i;
    return i;
  }

  // {% raw %} .. {% endraw %}; false if the tag at hand is another one.
  bool raw_block() {
    size_t i = skip_blanks(at_);
    if (!s_.substr(i).starts_with("raw")) return false;
    i = skip_blanks(i + 3);
    const char sign = sign_at(i) ? s_[i++] : ' ';
    if (!s_.substr(i).starts_with("%}")) return false;
    advance(i + 2);
    after_tag(sign, false);
    for (size_t open = at_; (open = s_.find("{%", open)) != s_.npos; open += 2) {
      size_t j = skip_blanks(open + 2 + (sign_at(open + 2) ? 1 : 0));
      if (!s_.substr(j).starts_with("endraw")) continue;
      j = skip_blanks(j + 6);
      const char end_sign = sign_at(j) ? s_[j++] : ' ';
      if (!s_.substr(j).starts_with("%}")) continue;
      line_starting_ = at_ > 0 && s_[at_ - 1] == '\n';
      put_data(at_, open);
      advance(j + 2);
      after_tag(end_sign, true);
      return true;
    }
    bad("a raw block is not closed");
  }

  void code(Token::Kind begin, Token::Kind end, std::string_view close) {
    put(begin, "");
    std::string brackets;
    for (;;) {
      advance(skip_blanks(at_));
      if (at_ >= s_.size()) bad("a tag is not closed");
      const char sign = sign_at(at_) && s_.substr(at_ + 1).starts_with(close) ? s_[at_] : ' ';
      if (brackets.empty() && (sign != ' ' || next_is(close))) {
        advance(at_ + (sign != ' ' ? 1 : 0) + close.size());
        put(end, "");
        after_tag(sign, end == Token::kBlockEnd);
        return;
      }
      token(brackets);
    }
  }

  void token(std::string& brackets) {
    const char c = s_[at_];
    if (is_name_start(c)) return name();
    if (is_digit_char(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    for (const std::string_view op : {"==", "!=", ">=", "<=", "//", "**"}) {
      if (next_is(op)) {
        put(Token::kOperator, std::string(op));
        return advance(at_ + 2);
      }
    }
    if (std::string_view("+-/*%~[](){}><=.:|,").find(c) == std::string_view::npos) {
      bad(fmt::format("unexpected character {:?}", std::string(1, c)));
    }
    if (c == '(' || c == '[' || c == '{') brackets += c;
    if (c == ')' || c == ']' || c == '}') {
      const char open = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (brackets.empty() || brackets.back() != open) bad(fmt::format("unexpected '{}'", c));
      brackets.pop_back();
    }
    put(Token::kOperator, std::string(1, c));
    advance(at_ + 1);
  }

  void name() {
    size_t end = at_;
    while (end < s_.size() && (is_name_start(s_[end]) || is_digit_char(s_[end]))) ++end;
    put(Token::kName, std::string(s_.substr(at_, end - at_)));
    advance(end);
  }

  void number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < s_.size() && is_digit_char(s_[end])) ++end;
    };
    digits();
    bool is_float = false;
    if (end + 1 < s_.size() && s_[end] == '.' && is_digit_char(s_[end + 1])) {
      is_float = true;
      ++end;
      digits();
    }
    size_t exponent = end < s_.size() && (s_[end] == 'e' || s_[end] == 'E') ? end + 1 : 0;
    if (exponent && sign_at(exponent)) ++exponent;
    if (exponent && exponent < s_.size() && is_digit_char(s_[exponent])) {
      is_float = true;
      end = exponent;
      digits();
    }
    put(is_float ? Token::kFloat : Token::kInteger, std::string(s_.substr(at_, end - at_)));
    advance(end);
  }

  void string(char quote) {
    std::string out;
    size_t i = at_ + 1;
    while (i < s_.size() && s_[i] != quote) {
      if (s_[i] != '\\') {
        out += s_[i++];
      } else {
        i = escape(i + 1, out);
      }
    }
    if (i >= s_.size()) bad("a string is not closed");
    put(Token::kString, std::move(out));
    advance(i + 1);
  }

  // The escape whose letter stands at i, as in Python; returns where the text goes on.
  size_t escape(size_t i, std::string& out) const {
    if (i >= s_.size()) bad("a string is not closed");
    static constexpr std::string_view kLetters = "ntr\\'\"abfv0\n";
    static constexpr std::string_view kMeanings("\n\t\r\\'\"\a\b\f\v\0", 11);
    const size_t known = kLetters.find(s_[i]);
    if (known == kMeanings.size()) return i + 1;  // an escaped newline vanishes
    if (known != kLetters.npos) {
      out += kMeanings[known];
      return i + 1;
    }
    const size_t digits = s_[i] == 'x' ? 2 : s_[i] == 'u' ? 4 : s_[i] == 'U' ? 8 : 0;
    if (digits == 0) {
      out += '\\';
      return i;
    }
    const std::string hex(s_.substr(i + 1, digits));
    if (hex.size() != digits ||
        !std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return std::isxdigit(c); })) {
      bad("a malformed escape in a string");
    }
    const unsigned long code = std::stoul(hex, nullptr, 16);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) bad("an escape in a string is no character");
    utf8_append(out, static_cast<char32_t>(code));
    return i + 1 + digits;
  }

  const std::string source_;
  const std::string_view s_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace lariat::jinja
