// Text of tokens as answers show it; private to api/.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/model_context.h"

namespace lariat {

// The bytes of all tokens, invalid UTF-8 as U+FFFD.
std::string text_of(std::span<const int32_t> ids, const TextCodec& codec);

// A token's string where one must be shown: its text, or "bytes:\xe2\x80" if it is no whole text.
std::string token_string(std::string_view bytes);

// Where each token begins in the text its bytes add up to, counted in characters. A token inside a character
// begins where the character does.
class CharacterOffsets {
 public:
  // The offset of the next token, whose bytes these are.
  int64_t next(std::string_view bytes);
  void skip_text(std::string_view text);

 private:
  int64_t begun_ = 0;  // characters begun so far
};

}  // namespace lariat
