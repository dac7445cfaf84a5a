#include "tokenizer/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace lariat {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    Pattern p{std::move(stop), {}, 0};
    p.fallback.assign(p.text.size() + 1, 0);
    for (size_t i = 1, k = 0; i < p.text.size(); ++i) {
      while (k > 0 && p.text[i] != p.text[k]) k = p.fallback[k];
      if (p.text[i] == p.text[k]) ++k;
      p.fallback[i + 1] = k;
    }
    patterns_.push_back(std::move(p));
  }
}

StopMatcher::Output StopMatcher::feed(std::string_view piece) {
  if (stopped_) return {{}, true};
  for (size_t i = 0; i < piece.size(); ++i) {
    size_t found = 0;
    for (Pattern& p : patterns_) {
      while (p.matched > 0 && p.text[p.matched] != piece[i]) p.matched = p.fallback[p.matched];
      if (p.text[p.matched] == piece[i]) ++p.matched;
      if (p.matched == p.text.size()) found = std::max(found, p.matched);
    }
    if (found == 0) continue;
    stopped_ = true;
    held_ += piece.substr(0, i + 1);
    held_.resize(held_.size() - found);
    return {std::move(held_), true};
  }
  held_ += piece;
  size_t keep = 0;
  for (const Pattern& p : patterns_) keep = std::max(keep, p.matched);
  Output out{held_.substr(0, held_.size() - keep), false};
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::finish() {
  for (Pattern& p : patterns_) p.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace lariat
