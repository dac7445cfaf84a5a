#include "base/excerpt.h"

#include "base/check.h"

namespace lariat {
namespace {

constexpr std::string_view kGap = "...";
constexpr int kContinuationMost = 3;  // of one character; broken text may have more in a row

bool inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

}  // namespace

std::string excerpt(std::string_view text, size_t bytes_max) {
  LARIAT_CHECK(bytes_max >= 16, "an excerpt of {} bytes", bytes_max);
  if (text.size() <= bytes_max) return std::string(text);
  size_t head = (bytes_max - kGap.size()) / 2;
  size_t tail = text.size() - (bytes_max - kGap.size() - head);
  for (int i = 0; i < kContinuationMost && inside_character(text, head); ++i) --head;
  for (int i = 0; i < kContinuationMost && inside_character(text, tail); ++i) ++tail;
  std::string out(text.substr(0, head));
  out += kGap;
  out += text.substr(tail);
  return out;
}

}  // namespace lariat
