// A bounded list of faults in something that came from outside, reported together in one error.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lariat {

class Problems {
 public:
  static constexpr size_t kShown = 20;

  // Keeps the first kShown texts and counts the rest, so that a hostile file cannot make the report grow.
  void add(std::string text) {
    if (texts_.size() < kShown) texts_.push_back(std::move(text));
    ++count_;
  }
  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }

  // "where: a; b; and 7 more". Bug: empty.
  Error error(Errc code, std::string_view where) const {
    LARIAT_CHECK(count_ > 0, "no problem to report");
    std::string message(where);
    for (size_t i = 0; i < texts_.size(); ++i) message += (i ? "; " : ": ") + texts_[i];
    if (count_ > texts_.size()) message += "; and " + std::to_string(count_ - texts_.size()) + " more";
    return make_error(code, std::move(message));
  }

 private:
  std::vector<std::string> texts_;
  size_t count_ = 0;
};

// A name out of a file as it may stand in a message: control bytes as '?', at most 128 bytes.
inline std::string printable(std::string_view name) {
  constexpr size_t kMax = 128;
  std::string out(name.substr(0, kMax));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (name.size() > kMax) {
    // Never end inside a UTF-8 sequence.
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
    out += "...";
  }
  return out;
}

}  // namespace lariat
