// Added tokens: found in the text before any splitting, as in the reference's AddedVocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_range.h"

namespace lariat {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // control token: skipped by decode on request, never found in untrusted text
  bool normalized = false;   // looked for after normalization
  bool single_word = false;  // not next to a word character
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
};

// Finds one set of added tokens, leftmost-longest.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher();
  void add(const AddedToken& token, std::string_view content);
  bool empty() const { return tokens_.empty(); }

  struct Piece {
    ByteRange range;
    int32_t id = -1;  // -1: text between tokens
  };
  struct Text {
    std::string_view utf8;
    const std::vector<ByteRange>* untrusted = nullptr;  // special tokens match only outside of these
    bool parse_special = true;                          // false: special tokens match nowhere
  };
  // Cuts the text into tokens and text between them, in order, covering it. O(bytes * longest token).
  std::vector<Piece> find(const Text& text) const;

 private:
  struct Match {
    size_t token = 0;
    size_t end = 0;
  };
  // The longest token that matches at `at`, with end = at if there is none.
  Match longest_at(const Text& text, size_t at, size_t trusted_end) const;

  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> children;
    int32_t token = -1;  // into tokens_
  };
  std::vector<Node> nodes_;
  std::vector<AddedToken> tokens_;
  bool first_bytes_[256] = {};
};

}  // namespace lariat
