#include "tokenizer/stream_decoder.h"

#include "tokenizer/utf8.h"

namespace lariat {

std::string StreamDecoder::feed(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  pending_ += tokenizer_.token_bytes(id);
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Char c = utf8_next(rest);
    if (c.truncated) break;
    out += c.valid ? rest.substr(0, c.length) : kReplacement;
    rest.remove_prefix(c.length);
  }
  pending_ = std::string(rest);
  return out;
}

std::string StreamDecoder::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return cut ? std::string(kReplacement) : std::string();
}

}  // namespace lariat
