// Encoding and decoding against ids recorded from the reference library, and the shapes of long hostile
// texts.
#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tokenizer/test_support.h"
#include "tokenizer/utf8.h"

namespace lariat {
namespace {

using nlohmann::ordered_json;
using test::byte_tokenizer;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Ids = std::vector<int32_t>;

void expect_entries(const Tokenizer& tokenizer, const ordered_json& entries) {
  ASSERT_GT(entries.size(), 10u);
  for (const auto& entry : entries) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = entry["ids"].get<Ids>();
    const auto got = tokenizer.encode(text);
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(*got, ids) << text;
    EXPECT_EQ(tokenizer.decode(ids, false), entry["decoded"].get<std::string>());
  }
}

TEST(Golden, NeedleEntries) {
  const auto path = test::shared("golden/needle-5m/tokenizer_cases.json");
  SKIP_WITHOUT(path);
  const auto tokenizer = test::load_model("needle-5m");
  ASSERT_TRUE(tokenizer);
  expect_entries(*tokenizer, test::read_json(path));
  EXPECT_THAT(tokenizer->eos_ids(), ElementsAre(5));
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_FALSE(tokenizer->adds_bos());
}

TEST(Golden, SmolLmEntries) {
  const auto path = test::shared("golden/smollm2-135m/cases.json");
  SKIP_WITHOUT(path);
  const auto tokenizer = test::load_model("smollm2-135m-instruct");
  ASSERT_TRUE(tokenizer);
  const auto cases = test::read_json(path);
  expect_entries(*tokenizer, cases["tokenizer"]);
  for (const auto& g : cases["generations"]) {
    EXPECT_EQ(*tokenizer->encode(g["prompt"].get<std::string>()), g["prompt_ids"].get<Ids>());
    EXPECT_EQ(tokenizer->decode(g["output_ids"].get<Ids>(), true), g["output"].get<std::string>());
  }
}

std::unique_ptr<const Tokenizer> parse(const ordered_json& json) {
  auto result = Tokenizer::parse(json.dump());
  if (!result.ok()) ADD_FAILURE() << result.error().message;
  return result.ok() ? *std::move(result) : nullptr;
}

Error parse_error(const ordered_json& json) {
  const auto result = Tokenizer::parse(json.dump());
  return result.ok() ? make_error(Errc::kInternal, "accepted") : result.error();
}

TEST(Encode, IgnoreMergesFindsWholeWords) {
  ordered_json json = byte_tokenizer({{"a", "b"}});
  json["model"]["vocab"]["abc"] = 257;  // no merges lead there
  EXPECT_THAT(*parse(json)->encode("abc"), ElementsAre(256, 'c'));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(*parse(json)->encode("abc"), ElementsAre(257));
}

TEST(Encode, MergesAsPairsAndAsStrings) {
  const ordered_json pairs = byte_tokenizer({{"t", "h"}, {"th", "e"}, {"Ġ", "the"}, {"e", "n"}});
  ordered_json strings = pairs;
  for (auto& merge : strings["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  for (const char* text : {" the then", "hen", " thethe"}) {
    EXPECT_EQ(*parse(pairs)->encode(text), *parse(strings)->encode(text));
  }
  EXPECT_THAT(*parse(strings)->encode(" then"), ElementsAre(258, 'n'));
}

TEST(Encode, InvalidUtf8CountsAsReplacement) {
  const auto tokenizer = parse(byte_tokenizer());
  for (const std::string bad :
       {"\xff", "a\x80z", "\xe4\xb8", "\xf0\x9f\xa6 x", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80"}) {
    EXPECT_EQ(*tokenizer->encode(bad), *tokenizer->encode(utf8_sanitize(bad)));
    EXPECT_EQ(tokenizer->decode(*tokenizer->encode(bad), false), utf8_sanitize(bad));
  }
  EXPECT_EQ(utf8_sanitize("\xe4\xb8"
                          "a\xff\xff"),
            "\xEF\xBF\xBD"
            "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Decode, IdsWithoutTokenGiveNothing) {
  const auto tokenizer = parse(byte_tokenizer());
  EXPECT_EQ(tokenizer->decode(Ids{-1, 'a', 100000, INT32_MAX, INT32_MIN, 'b'}, true), "ab");
}

// C03. Steps are counted, not timed: doubling the text may at most double them, up to the logarithm.
TEST(LongRuns, WorkGrowsLinearly) {
  ordered_json json = byte_tokenizer({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}, {"^", "^"}, {"^^", "^^"}});
  TokenTable tokens;
  for (const auto& [token, id] : json["model"]["vocab"].items()) {
    ASSERT_TRUE(tokens.add(id.get<int>(), token).ok());
  }
  const auto id = [&](const char* s) { return *tokens.find(s); };
  const BpeModel bpe(tokens, {{id("a"), id("a"), id("aa")}, {id("aa"), id("aa"), id("aaaa")}},
                     std::vector<bool>(static_cast<size_t>(tokens.size())), {});
  uint64_t before = 0;
  for (const size_t n : {25'000, 50'000, 100'000, 1'000'000}) {
    BpeModel::Scratch scratch;
    Ids ids;
    bpe.encode(std::string(n, 'a'), ids, scratch);
    EXPECT_EQ(ids.size(), n / 4);
    EXPECT_LE(scratch.merge_steps, 6 * n);
    if (n <= 100'000 && before) {
      EXPECT_LE(scratch.merge_steps, before * 21 / 10);
    }
    before = scratch.merge_steps;
  }
}

TEST(LongRuns, RoundTripOnADefaultStack) {
  for (const char* name : {"needle-5m", "smollm2-135m-instruct"}) {
    SKIP_WITHOUT(test::shared(std::string("models/") + name));
    const auto tokenizer = test::load_model(name);
    std::string han;
    for (int i = 0; i < 30'000; ++i) han += "中";
    std::string mixed;
    for (int i = 0; i < 50'000; ++i) mixed += i % 7 ? "\n " : "\t\r\n";
    for (const std::string& text : {std::string(100'000, 'a'), std::string(1'000'000, '^'),
                                    std::string(200'000, ' '), han, mixed, std::string(200'000, '7')}) {
      const auto ids = tokenizer->encode(text);
      ASSERT_TRUE(ids.ok()) << ids.error().message;
      EXPECT_TRUE(tokenizer->decode(*ids, false) == text) << text.substr(0, 8);
    }
  }
}

TEST(Encode, ConcurrentCallsAgree) {
  const auto tokenizer = parse(byte_tokenizer({{"a", "b"}, {"ab", "ab"}}));
  const std::string text = "abab ab éé ababab";
  const Ids expected = *tokenizer->encode(text);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_EQ(*tokenizer->encode(text), expected);
    });
  }
  for (auto& t : threads) t.join();
}

TEST(Bos, OneRule) {
  ordered_json json = byte_tokenizer();
  json["added_tokens"] = {{{"id", 256}, {"content", "<s>"}, {"special", true}, {"normalized", false}}};
  EXPECT_FALSE(parse(json)->adds_bos());
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {256}}}}}}};
  EXPECT_THAT(*parse(json)->encode("x"), ElementsAre(256, 'x'));
  EXPECT_THAT(*parse(json)->encode("x", {.add_bos = false}), ElementsAre('x'));
  EXPECT_THAT(*parse(json)->encode("<s>x"), ElementsAre(256, 256, 'x'));
  EXPECT_THAT(*parse(json)->encode(""), ElementsAre(256));
  // tokenizer_config.json's add_bos_token wins.
  const auto without = Tokenizer::parse(
      json.dump(), *parse_tokenizer_config(R"({"bos_token":"<s>","add_bos_token":false})", ""));
  EXPECT_FALSE((*without)->adds_bos());
  json["post_processor"] = nullptr;
  const auto with = Tokenizer::parse(
      json.dump(), *parse_tokenizer_config(R"({"bos_token":{"content":"<s>"},"add_bos_token":true})", ""));
  EXPECT_THAT(*(*with)->encode("x"), ElementsAre(256, 'x'));
}

TEST(Refusals, ByName) {
  const auto refusal = [](const char* pointer, ordered_json value) {
    ordered_json json = byte_tokenizer({{"a", "b"}});
    json[ordered_json::json_pointer(pointer)] = std::move(value);
    const Error e = parse_error(json);
    EXPECT_EQ(e.code, Errc::kUnsupported) << pointer << ": " << e.message;
    return e.message;
  };
  EXPECT_THAT(refusal("/model/type", "Unigram"), HasSubstr("Unigram"));
  EXPECT_THAT(refusal("/model/type", "WordPiece"), HasSubstr("WordPiece"));
  EXPECT_THAT(refusal("/model/byte_fallback", true), HasSubstr("byte_fallback"));
  EXPECT_THAT(refusal("/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(refusal("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(refusal("/normalizer", {{"type", "Lowercase"}}), HasSubstr("Lowercase"));
  EXPECT_THAT(refusal("/pre_tokenizer", {{"type", "Metaspace"}}), HasSubstr("Metaspace"));
  EXPECT_THAT(refusal("/pre_tokenizer", nullptr), HasSubstr("ByteLevel"));
  EXPECT_THAT(refusal("/decoder", {{"type", "BPEDecoder"}}), HasSubstr("BPEDecoder"));
  EXPECT_THAT(refusal("/post_processor", {{"type", "BertProcessing"}}), HasSubstr("BertProcessing"));
  for (const char* regex : {"\\w+", "a$", "(a)\\1", "(?R)", "[a[b]]", "[a&&b]", "\\p{L}{1,2}+", "\\bx",
                            "(*FAIL)", "(?C1)a", "\\h", "x{,3}"}) {
    EXPECT_THAT(refusal("/pre_tokenizer",
                        {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}}),
                HasSubstr("regex uses"));
  }
}

TEST(Refusals, AllAtOnce) {
  ordered_json json = byte_tokenizer({{"a", "b"}});
  json["model"]["dropout"] = 0.1;
  json["model"]["byte_fallback"] = true;
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", {{{"type", "Lowercase"}}, {{"type", "Strip"}}}}};
  json["decoder"] = {{"type", "WordPiece"}};
  json["post_processor"] = {{"type", "BertProcessing"}};
  const Error e = parse_error(json);
  EXPECT_EQ(e.code, Errc::kUnsupported);
  for (const char* name : {"dropout", "byte_fallback", "Lowercase", "Strip", "WordPiece", "BertProcessing"}) {
    EXPECT_THAT(e.message, HasSubstr(name));
  }
  // Of another model only what does not follow from its kind.
  json["model"] = {{"type", "Unigram"}, {"vocab", ordered_json::array()}, {"dropout", 0.5}};
  const Error other = parse_error(json);
  EXPECT_THAT(other.message, HasSubstr("model: type \"Unigram\""));
  EXPECT_THAT(other.message, HasSubstr("dropout"));
  EXPECT_THAT(other.message, Not(HasSubstr("vocab")));
  EXPECT_THAT(other.message, HasSubstr("WordPiece"));
  json = byte_tokenizer();
  json["decoder"]["type"] = "Fuse";
  json["model"]["merges"] = {3};
  EXPECT_EQ(parse_error(json).code, Errc::kCorruptData);
}

TEST(Corrupt, NothingCrashes) {
  const ordered_json good = byte_tokenizer({{"a", "b"}});
  const auto fault = [&](const char* pointer, ordered_json value) {
    ordered_json json = good;
    json[ordered_json::json_pointer(pointer)] = std::move(value);
    const Error e = parse_error(json);
    EXPECT_EQ(e.code, Errc::kCorruptData) << pointer << ": " << e.message;
    return e.message;
  };
  EXPECT_THAT(fault("/model/vocab/xx", -1), HasSubstr("\"xx\""));
  EXPECT_THAT(fault("/model/vocab/xx", int64_t{1} << 40), HasSubstr("outside"));
  EXPECT_THAT(fault("/model/vocab/xx", 7), HasSubstr("has the id of"));
  EXPECT_THAT(fault("/model/vocab/xx", "7"), HasSubstr("no integer"));
  EXPECT_THAT(fault("/model/merges/0", {"a", "zz"}), HasSubstr("not made of tokens"));
  EXPECT_THAT(fault("/model/merges/0", "a"), HasSubstr("not two words"));
  EXPECT_THAT(fault("/model/merges/0", 3), HasSubstr("neither"));
  EXPECT_THAT(fault("/model", ordered_json::array()), HasSubstr("model"));
  EXPECT_THAT(fault("/added_tokens", {{{"id", 3}, {"content", "zz"}}}), HasSubstr("added_tokens"));
  EXPECT_THAT(fault("/added_tokens", {{{"id", 999}, {"content", ""}}}), HasSubstr("empty"));
  const std::string text = good.dump();
  for (size_t n = 0; n < text.size(); n += 97) {
    EXPECT_FALSE(Tokenizer::parse(std::string_view(text).substr(0, n)).ok());
  }
  EXPECT_FALSE(Tokenizer::parse(std::string(100'000, '[')).ok());
  EXPECT_FALSE(Tokenizer::parse(R"({"model":{"vocab":{"a":0,"a":1},"merges":[]}})").ok());
}

TEST(Limits, BacktrackingPatternGivesUp) {
  ordered_json json = byte_tokenizer();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "(a|aa)+[bc]"}}}, {"behavior", "Isolated"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const auto ids = parse(json)->encode(std::string(5000, 'a'));
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, Errc::kResourceExhausted);
}

}  // namespace
}  // namespace lariat
