// Tests of the small things everything stands on.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "base/excerpt.h"
#include "base/json.h"
#include "base/philox.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace lariat {
namespace {

TEST(Philox, KnownAnswers) {
  // From the Random123 distribution, kat_vectors: philox4x32 10.
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(ThreadPool, EveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      pool.parallel_for(count, [&](int64_t i, int thread) {
        EXPECT_LT(thread, threads);
        seen[static_cast<size_t>(i)].fetch_add(1);
      });
      for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortRounds) {
  ThreadPool pool(3);
  int64_t total = 0;
  for (int round = 0; round < 20000; ++round) {
    std::atomic<int64_t> sum{0};
    pool.parallel_for(4, [&](int64_t i, int) { sum += i; });
    total += sum;
  }
  EXPECT_EQ(total, 20000 * 6);
}

TEST(Json, DepthAndDuplicates) {
  EXPECT_TRUE(parse_json(R"({"a":[1,2,{"b":null}]})").ok());
  const std::string deep = std::string(100000, '[');
  const auto r = parse_json(deep);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("deeper than 64"), std::string::npos) << r.error().message;
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})", {.reject_duplicate_keys = true}).ok());
  EXPECT_TRUE(parse_json(R"({"a":{"a":1},"b":{"a":2}})", {.reject_duplicate_keys = true}).ok());
  EXPECT_FALSE(parse_json("\"\xff\"").ok());
  EXPECT_FALSE(parse_json("{} x").ok());
  EXPECT_FALSE(parse_json("").ok());
  EXPECT_FALSE(parse_json(std::string_view("{}\0garbage", 10)).ok());
}

// What is wrong stands in the message, and little of the text that is.
TEST(Json, FaultsAreShortWhateverTheText) {
  const std::string long_text(1 << 20, 'a');
  for (const std::string& text :
       {"{\"prompt\":\"" + long_text + "\x01\"}", "\"" + long_text, "\"" + long_text + "\" 1",
        std::string(1 << 20, '1') + "e999", "1" + std::string(1 << 20, '2') + "x",
        "{\"" + long_text + "\":1,\"" + long_text + "\":2}"}) {
    const auto r = parse_json(text, {.reject_duplicate_keys = true});
    ASSERT_FALSE(r.ok()) << text.substr(0, 20);
    EXPECT_LT(r.error().message.size(), 500u);
    EXPECT_GT(r.error().message.size(), 50u);
  }
  const auto r = parse_json("{\"prompt\":\"" + long_text + "\x01\"}");
  EXPECT_NE(r.error().message.find("U+0001"), std::string::npos) << r.error().message;
}

TEST(Excerpt, KeepsBothEndsAndCutsNoCharacter) {
  EXPECT_EQ(excerpt("", 16), "");
  EXPECT_EQ(excerpt("exactly 16 bytes", 16), "exactly 16 bytes");
  EXPECT_EQ(excerpt("one more than 16!", 16), "one mo...han 16!");
  std::string characters;  // of one to four bytes
  for (int i = 0; i < 50; ++i) characters += "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  for (size_t most = 16; most < 60; ++most) {
    const std::string e = excerpt(characters, most);
    EXPECT_LE(e.size(), most);
    EXPECT_GE(e.size() + 6, most);
    EXPECT_TRUE(parse_json("\"" + e + "\"").ok()) << "not UTF-8: " << most;
  }
  EXPECT_LE(excerpt(std::string(1000, '\x80'), 20).size(), 20u);
}

Result<int> half(int x) {
  if (x % 2) return make_error(Errc::kInvalidArgument, "odd");
  return x / 2;
}
Result<int> quarter(int x) {
  LARIAT_ASSIGN(const int h, half(x));
  return half(h);
}

TEST(Result, Propagates) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message, "odd");
}

}  // namespace
}  // namespace lariat
