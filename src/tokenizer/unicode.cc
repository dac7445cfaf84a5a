#include "tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace lariat {
namespace {

const icu::Normalizer2& nfc_instance() {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* instance = icu::Normalizer2::getNFCInstance(code);
  LARIAT_CHECK(U_SUCCESS(code), "ICU has no NFC data: {}", u_errorName(code));
  return *instance;
}

icu::StringPiece piece(std::string_view text) {
  return icu::StringPiece(text.data(), static_cast<int32_t>(text.size()));
}

void append_nfc(std::string_view text, std::string& out) {
  UErrorCode code = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(&out);
  nfc_instance().normalizeUTF8(0, piece(text), sink, nullptr, code);
  LARIAT_CHECK(U_SUCCESS(code), "NFC of {} bytes: {}", text.size(), u_errorName(code));
}

bool boundary_at(std::string_view text, size_t at) {
  return at == 0 || at >= text.size() ||
         nfc_instance().hasBoundaryBefore(static_cast<UChar32>(utf8_next(text.substr(at)).code));
}

size_t char_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

template <typename Map>
std::string map_case(std::string_view text, Map map) {
  std::string out;
  UErrorCode code = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(&out);
  map("", 0, piece(text), sink, nullptr, code);
  LARIAT_CHECK(U_SUCCESS(code), "case mapping: {}", u_errorName(code));
  return out;
}

}  // namespace

bool is_space(char32_t c) {
  return u_isUWhiteSpace(static_cast<UChar32>(c));
}

bool is_word_char(char32_t c) {
  const auto u = static_cast<UChar32>(c);
  return u_isUAlphabetic(u) || (U_MASK(u_charType(u)) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) ||
         u_hasBinaryProperty(u, UCHAR_JOIN_CONTROL);
}

bool is_alpha(char32_t c) {
  return U_MASK(u_charType(static_cast<UChar32>(c))) & U_GC_L_MASK;
}
bool is_digit(char32_t c) {
  const auto u = static_cast<UChar32>(c);
  const int32_t type = u_getIntPropertyValue(u, UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool is_upper(char32_t c) {
  return u_isUUppercase(static_cast<UChar32>(c));
}
bool is_lower(char32_t c) {
  return u_isULowercase(static_cast<UChar32>(c));
}

std::string nfc(std::string_view text, std::vector<ByteRange>* ranges) {
  UErrorCode code = U_ZERO_ERROR;
  if (nfc_instance().isNormalizedUTF8(piece(text), code) && U_SUCCESS(code)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  if (!ranges || ranges->empty()) {
    append_nfc(text, out);
    return out;
  }
  // Grown to normalization boundaries, a range's inside and outside normalize independently of each other.
  std::vector<ByteRange> grown, moved;
  for (ByteRange r : *ranges) {
    while (!boundary_at(text, r.begin)) r.begin = char_before(text, r.begin);
    while (!boundary_at(text, r.end)) r.end += utf8_next(text.substr(r.end)).length;
    append_range(grown, r);
  }
  size_t done = 0;
  for (const ByteRange& r : grown) {
    append_nfc(text.substr(done, r.begin - done), out);
    const size_t begin = out.size();
    append_nfc(text.substr(r.begin, r.size()), out);
    append_range(moved, {begin, out.size()});
    done = r.end;
  }
  append_nfc(text.substr(done), out);
  *ranges = std::move(moved);
  return out;
}

std::string to_upper(std::string_view text) {
  return map_case(text, [](auto&&... a) { icu::CaseMap::utf8ToUpper(a...); });
}
std::string to_lower(std::string_view text) {
  return map_case(text, [](auto&&... a) { icu::CaseMap::utf8ToLower(a...); });
}

}  // namespace lariat
