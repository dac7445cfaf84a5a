#include "api/echo_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "tokenizer/utf8.h"

namespace lariat {
namespace {

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

}  // namespace

std::string text_of(std::span<const int32_t> ids, const TextCodec& codec) {
  std::string bytes;
  for (const int32_t id : ids) bytes += codec.token_bytes(id);
  return utf8_sanitize(bytes);
}

std::string token_string(std::string_view bytes) {
  if (utf8_valid(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

int64_t CharacterOffsets::next(std::string_view bytes) {
  const bool inside = !bytes.empty() && continues_character(bytes[0]) && begun_ > 0;
  const int64_t offset = inside ? begun_ - 1 : begun_;
  skip_text(bytes);
  return offset;
}

void CharacterOffsets::skip_text(std::string_view text) {
  begun_ += std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); });
}

}  // namespace lariat
