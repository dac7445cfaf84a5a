// Stop strings in generated text, across the pieces it comes in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lariat {

// Emits text as soon as it cannot be the beginning of a stop string, and nothing from a stop string on. Of
// several matches the one that ends first counts, then the longest. Sees generated text only, so a stop text
// in the prompt never stops. Empty stop strings are ignored. Cost per byte is amortised O(number of stop
// strings).
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  struct Output {
    std::string text;      // to deliver now
    bool stopped = false;  // a stop string was found: `text` ends where it began
  };
  // After a stop nothing more comes out.
  Output feed(std::string_view piece);
  // The text held back, when generation ends for another reason.
  std::string finish();

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // Knuth-Morris-Pratt: longest proper border of each prefix
    size_t matched = 0;
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace lariat
