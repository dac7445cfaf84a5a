// The few Unicode properties and mappings the tokenizer needs, from ICU. All texts are valid UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_range.h"

namespace lariat {

// White_Space, as \s of Oniguruma and of Rust's regex.
bool is_space(char32_t c);
// Alphabetic, marks, decimal digits, connectors and joiners: \w of Rust's regex.
bool is_word_char(char32_t c);
// Whether str.isalpha(), isdigit(), isalnum() of Python hold for one character.
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);

// Normal form C. `ranges` (sorted, disjoint, in bytes of `text`) are carried over to the result: a range that
// begins or ends inside a sequence that composes grows to cover it.
std::string nfc(std::string_view text, std::vector<ByteRange>* ranges = nullptr);

// Full case mappings, root locale ("ß" becomes "SS").
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);

}  // namespace lariat
