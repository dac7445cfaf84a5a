// Token ids to text, one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace lariat {

// The deltas joined, finish() included, equal Tokenizer::decode of all ids, whatever the cut: a character
// split over tokens waits for its last byte; bytes that cannot become a character are one U+FFFD as soon as
// that is sure. Not for concurrent use; the tokenizer must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // Valid UTF-8, often empty.
  std::string feed(int32_t id);
  // What is left: nothing, or one U+FFFD for a character that never came whole. Starts over.
  std::string finish();

  // Bytes held back, 0..3.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_;
  std::string pending_;
};

}  // namespace lariat
