// UTF-8 as bytes from outside: decoding that never trusts its input.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lariat {

struct Utf8Char {
  char32_t code;   // U+FFFD if invalid
  size_t length;   // bytes taken, at least 1; of an invalid sequence its maximal subpart (Unicode 15, 3.9)
  bool valid;      // false: these bytes stand for one U+FFFD
  bool truncated;  // invalid only because the text ends: more bytes could complete it
};

// The first character of `text`, which must not be empty.
Utf8Char utf8_next(std::string_view text);

// Bytes before the first invalid sequence.
size_t utf8_valid_bytes(std::string_view text);
bool utf8_valid(std::string_view text);

// Every invalid maximal subpart becomes one U+FFFD, as Rust's from_utf8_lossy and the WHATWG decoder do.
std::string utf8_sanitize(std::string_view text);

void utf8_append(std::string& out, char32_t code);

// Characters of valid text.
size_t utf8_count(std::string_view text);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace lariat
