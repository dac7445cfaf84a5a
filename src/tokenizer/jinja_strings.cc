// String functions that methods and filters share.
#include <algorithm>
#include <cstring>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace lariat::jinja {
namespace {

// str.isspace of Python also counts the four separators of ASCII.
bool is_python_space(char32_t c) {
  return is_space(c) || (c >= 0x1C && c <= 0x1F);
}

}  // namespace

Text strip(Meter& meter, const Text& t, const Text* chars, int sides) {
  const auto goes = [&](std::string_view c) {
    return chars ? chars->bytes.find(c) != std::string::npos : is_python_space(utf8_next(c).code);
  };
  // For every character that goes.
  const uint64_t steps = chars ? 1 + chars->bytes.size() / 32 : 1;
  const std::string_view s = t.bytes;
  size_t begin = 0, end = s.size();
  while ((sides & 1) && begin < end) {
    const size_t n = utf8_next(s.substr(begin)).length;
    meter.spend_walk(n * steps);
    if (!goes(s.substr(begin, n))) break;
    begin += n;
  }
  while ((sides & 2) && begin < end) {
    size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(s[last]) & 0xC0) == 0x80) --last;
    meter.spend_walk((end - last) * steps);
    if (!goes(s.substr(last, end - last))) break;
    end = last;
  }
  meter.spend_bytes(end - begin);
  return t.slice(begin, end);
}

size_t find_text(Meter& meter, std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const std::string_view rest = text.substr(from);
  // The standard library's search compares the needle at every place.
  const void* at =
      needle.empty() ? rest.data() : memmem(rest.data(), rest.size(), needle.data(), needle.size());
  const size_t begin =
      at ? from + static_cast<size_t>(static_cast<const char*>(at) - rest.data()) : std::string_view::npos;
  meter.spend_bytes(2 * (at ? begin - from : rest.size()) + needle.size());
  return begin;
}

Text replace_all(Context& context, const Text& t, const Text& from, const Text& to, int64_t count_max) {
  Text out;
  size_t done = 0;
  const auto put = [&](const Text& part) {
    context.spend_steps(1);
    context.spend_bytes(part.bytes.size() + sizeof(ByteRange) * part.untrusted.size());
    out.append(part);
  };
  for (size_t at = 0;
       count_max != 0 && (at = find_text(context, t.bytes, from.bytes, at)) != std::string::npos;
       --count_max) {
    put(t.slice(done, at));
    put(to);
    done = at + from.bytes.size();
    at = done;
    if (!from.bytes.empty()) continue;
    if (done == t.bytes.size()) break;
    at = done +
         utf8_next(std::string_view(t.bytes).substr(done)).length;  // an empty text is between all characters
  }
  put(t.slice(done, t.bytes.size()));
  return out;
}

Text capitalized(Meter& meter, const Text& t) {
  meter.spend_case_map(t.bytes.size());
  if (t.bytes.empty()) return t;
  const size_t first = utf8_next(t.bytes).length;
  return t.mapped(to_upper(t.bytes.substr(0, first)) + to_lower(std::string_view(t.bytes).substr(first)));
}

Text titled(Meter& meter, const Text& t) {
  meter.spend_case_map(t.bytes.size());
  std::string out;
  bool inside = false;
  for (std::string_view rest = t.bytes; !rest.empty();) {
    const Utf8Char c = utf8_next(rest);
    out += inside ? to_lower(rest.substr(0, c.length)) : to_upper(rest.substr(0, c.length));
    inside = is_alpha(c.code);
    rest.remove_prefix(c.length);
  }
  return t.mapped(std::move(out));
}

}  // namespace lariat::jinja
