// C42: stop strings across pieces.
#include "tokenizer/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace lariat {
namespace {

struct Delivered {
  std::string text;
  bool stopped = false;
  friend bool operator==(const Delivered&, const Delivered&) = default;
};

Delivered run(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(std::move(stops));
  Delivered d;
  for (const auto& piece : pieces) {
    const auto out = matcher.feed(piece);
    d.text += out.text;
    d.stopped = out.stopped;
  }
  d.text += matcher.finish();
  return d;
}

TEST(StopMatcher, C42) {
  EXPECT_EQ(run({"DEFGHIJ"}, {"ABC", "DEF", "G", "HI", "J"}), (Delivered{"ABC", true}));
  EXPECT_EQ(run({"DEFGHIJ"}, {"DEF", "G", "X"}), (Delivered{"DEFGX", false}));
  EXPECT_EQ(run({"\nUser:"}, {"hi", "\nUser", ":"}), (Delivered{"hi", true}));
  EXPECT_EQ(run({"own fox"}, {"The quick br", "own", " fox"}), (Delivered{"The quick br", true}));
  EXPECT_EQ(run({"gamma"}, {" gamma delta"}), (Delivered{" ", true}));
  EXPECT_EQ(run({""}, {"a", "b"}), (Delivered{"ab", false}));
  EXPECT_EQ(run({}, {"a", "b"}), (Delivered{"ab", false}));
}

TEST(StopMatcher, HoldsBackNoMoreThanItMust) {
  StopMatcher matcher({"DEFGHIJ"});
  EXPECT_EQ(matcher.feed("ABC").text, "ABC");
  EXPECT_EQ(matcher.feed("DEF").text, "");
  EXPECT_EQ(matcher.feed("G").text, "");
  EXPECT_EQ(matcher.feed("X").text, "DEFGX");
  EXPECT_EQ(matcher.feed("DEFDEF").text, "DEF");
  EXPECT_EQ(matcher.finish(), "DEF");
}

TEST(StopMatcher, SeveralStops) {
  EXPECT_EQ(run({"bc", "abcd"}, {"xa", "b", "cd"}), (Delivered{"xa", true}));
  EXPECT_EQ(run({"bc", "abc"}, {"xabc"}), (Delivered{"x", true}));
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b", "tail"}), (Delivered{"a", true}));
}

// The plain definition: the match that ends first, then the longest.
Delivered reference(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t best = 0;
    for (const auto& s : stops) {
      if (s.size() <= end && text.compare(end - s.size(), s.size(), s) == 0) best = std::max(best, s.size());
    }
    if (best) return {text.substr(0, end - best), true};
  }
  return {text, false};
}

TEST(StopMatcher, EqualsThePlainDefinition) {
  const uint32_t seed = 7;
  std::mt19937 random(seed);
  const auto word = [&](size_t length_max) {
    std::string s(1 + random() % length_max, 'a');
    for (char& c : s) c = static_cast<char>('a' + random() % 2);
    return s;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops(1 + random() % 3), pieces(random() % 6);
    for (auto& s : stops) s = word(5);
    std::string text;
    for (auto& p : pieces) text += p = word(4);
    ASSERT_EQ(run(stops, pieces), reference(stops, text)) << "seed " << seed << " round " << round;
  }
}

}  // namespace
}  // namespace lariat
