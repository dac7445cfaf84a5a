// C41: characters split over tokens.
#include "tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/test_support.h"
#include "tokenizer/utf8.h"

namespace lariat {
namespace {

// Tokens of given bytes, by the ids that Qwen's vocabulary gives them.
std::unique_ptr<const Tokenizer> qwen_pieces() {
  nlohmann::ordered_json json = test::byte_tokenizer();
  nlohmann::ordered_json vocab = nlohmann::ordered_json::object();
  const auto put = [&](const std::string& bytes, int id) {
    std::string written;
    for (const char c : bytes) written += byte_level_char(static_cast<unsigned char>(c));
    vocab[written] = id;
  };
  put(" this", 419);
  put(" is", 374);
  put(" \xF0\x9F", 11162);
  put("\xA6", 99);
  put("\x99", 247);
  put(".", 13);
  put("cpp", 10821);
  json["model"]["vocab"] = vocab;
  json["added_tokens"] = {{{"id", 20000}, {"content", "<|x|>"}, {"special", true}, {"normalized", false}}};
  auto result = Tokenizer::parse(json.dump());
  EXPECT_TRUE(result.ok());
  return *std::move(result);
}

std::vector<std::string> deltas(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(tokenizer, true);
  std::vector<std::string> out;
  for (const int32_t id : ids) out.push_back(decoder.feed(id));
  out.push_back(decoder.finish());
  return out;
}

using Deltas = std::vector<std::string>;

TEST(StreamDecoder, C41) {
  const auto t = qwen_pieces();
  EXPECT_EQ(deltas(*t, {419, 374, 11162, 99, 247, 13, 10821}),
            (Deltas{" this", " is", " ", "", "🦙", ".", "cpp", ""}));
  EXPECT_EQ(deltas(*t, {419, 374, 11162, 99}), (Deltas{" this", " is", " ", "", "\uFFFD"}));
  EXPECT_EQ(t->decode(std::vector<int32_t>{419, 374, 11162, 99}, true), " this is \uFFFD");
  EXPECT_EQ(deltas(*t, {99, 13}), (Deltas{"\uFFFD", ".", ""}));
  EXPECT_EQ(deltas(*t, {11162, 11162, 99, 247}), (Deltas{" ", "\uFFFD ", "", "🦙", ""}));
  // A special token that is skipped does not end a character; an unknown id gives nothing.
  EXPECT_EQ(deltas(*t, {11162, 20000, 99, 777, 247}), (Deltas{" ", "", "", "", "🦙", ""}));
}

TEST(StreamDecoder, EqualsDecodeOnRandomIds) {
  SKIP_WITHOUT(test::shared("models/smollm2-135m-instruct"));
  const auto t = test::load_model("smollm2-135m-instruct");
  const uint32_t seed = 20260101;
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids(1 + random() % 12);
    // Half of them single bytes, where characters break.
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % (random() % 2 ? 300u : 49152u));
    for (const bool skip : {false, true}) {
      StreamDecoder decoder(*t, skip);
      std::string joined;
      for (const int32_t id : ids) {
        const std::string delta = decoder.feed(id);
        EXPECT_TRUE(utf8_valid(delta));
        joined += delta;
      }
      joined += decoder.finish();
      ASSERT_EQ(joined, t->decode(ids, skip)) << "seed " << seed << " round " << round;
    }
  }
}

}  // namespace
}  // namespace lariat
