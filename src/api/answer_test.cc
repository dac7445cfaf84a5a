// Answers of both APIs, whole and streamed: the same content in two shapes.
#include "api/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "api/byte_codec_test_util.h"
#include "api/logprobs.h"

namespace lariat {
namespace {

using nlohmann::json;

TokenReport token(int32_t id, std::string bytes, float logprob) {
  TokenReport t;
  t.id = id;
  t.bytes = std::move(bytes);
  t.logprob = logprob;
  return t;
}

ChoiceReport report(int32_t choice, std::string text, std::vector<TokenReport> tokens,
                    FinishReason finish = FinishReason::kNone) {
  ChoiceReport r;
  r.choice = choice;
  r.text = std::move(text);
  for (const TokenReport& t : tokens) r.token_ids.push_back(t.id);
  r.logprobs = std::move(tokens);
  r.finish = finish;
  return r;
}

class AnswerTest : public ::testing::Test {
 protected:
  ByteCodec codec_;
  ModelContext model_ = byte_model(codec_);

  ParsedRequest chat(const std::string& fields) {
    return parse_chat(R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}", model_).value();
  }
  ParsedRequest completion(const std::string& fields) {
    return parse_completion("{" + fields + "}", model_).value();
  }
  struct Both {
    json body;
    std::vector<json> chunks;
  };
  // Plays the same reports once whole and once streamed.
  Both play(const ParsedRequest& request, const std::vector<std::pair<size_t, ChoiceReport>>& reports,
            const std::vector<TokenReport>& prompt = {}) {
    Both both;
    Answer whole(request, &codec_), streamed(request, &codec_);
    std::vector<std::string> payloads;
    if (!prompt.empty()) {
      whole.add_prompt(0, prompt);
      streamed.add_prompt(0, prompt);
    }
    for (const auto& [g, r] : reports) {
      whole.add(g, r, nullptr);
      streamed.add(g, r, &payloads);
    }
    for (size_t g = 0; g < request.generations.size(); ++g) {
      EXPECT_FALSE(whole.finished());
      whole.finish(g, {10, 4});
      streamed.finish(g, {10, 4});
    }
    EXPECT_TRUE(whole.finished());
    both.body = json::parse(whole.body());
    for (const std::string& p : payloads) {
      EXPECT_EQ(p.find('\n'), std::string::npos);
      both.chunks.push_back(json::parse(p));
    }
    both.chunks.push_back(json::parse(streamed.usage_payload()));
    return both;
  }
  static std::string streamed_text(const Both& both, int index) {
    std::string text;
    for (const json& chunk : both.chunks) {
      for (const json& c : chunk["choices"]) {
        if (c["index"] != index) continue;
        text += c.contains("text") ? c["text"].get<std::string>() : c["delta"].value("content", "");
      }
    }
    return text;
  }
};

// C44
TEST_F(AnswerTest, ChatStreamShape) {
  const ParsedRequest request = chat(R"("stream":true,"stream_options":{"include_usage":true})");
  const Both both = play(
      request,
      {{0, report(0, "Hel", {})}, {0, report(0, "", {})}, {0, report(0, "lo", {}, FinishReason::kStop)}});
  ASSERT_EQ(both.chunks.size(), 5u);
  EXPECT_EQ(both.chunks[0]["choices"][0]["delta"], json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(both.chunks[1]["choices"][0]["delta"], json::parse(R"({"content":"Hel"})"));
  EXPECT_EQ(both.chunks[2]["choices"][0]["delta"], json::parse(R"({"content":"lo"})"));
  EXPECT_EQ(both.chunks[3]["choices"][0]["delta"], json::object());
  EXPECT_EQ(both.chunks[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(both.chunks[4]["choices"], json::array());
  EXPECT_EQ(both.chunks[4]["usage"],
            json::parse(R"({"prompt_tokens":10,"completion_tokens":4,"total_tokens":14})"));
  int finishes = 0;
  for (size_t i = 0; i < both.chunks.size(); ++i) {
    const json& c = both.chunks[i];
    EXPECT_EQ(c["id"], both.chunks[0]["id"]);
    EXPECT_EQ(c["created"], both.chunks[0]["created"]);
    EXPECT_EQ(c["model"], "toy");
    EXPECT_EQ(c["object"], "chat.completion.chunk");
    if (i + 1 == both.chunks.size()) continue;
    EXPECT_TRUE(c["usage"].is_null() && c.contains("usage"));
    finishes += !c["choices"][0]["finish_reason"].is_null();
  }
  EXPECT_EQ(finishes, 1);
  EXPECT_EQ(both.body["choices"][0]["message"],
            json::parse(R"({"role":"assistant","content":"Hello","refusal":null})"));
  EXPECT_EQ(both.body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(both.body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(both.body["object"], "chat.completion");
  EXPECT_EQ(both.body["usage"]["total_tokens"], 14);

  const Both plain = play(chat(R"("stream":true)"), {{0, report(0, "x", {}, FinishReason::kLength)}});
  for (size_t i = 0; i + 1 < plain.chunks.size(); ++i) EXPECT_FALSE(plain.chunks[i].contains("usage"));
}

// C40 (c) (f)
TEST_F(AnswerTest, ChatLogprobsCarryBytes) {
  std::vector<TokenReport> tokens = {token(11162, "\x20\xF0\x9F", -0.1f), token(99, "\xA6", -0.25f),
                                     token(247, "\x99", 0.0f)};
  tokens[0].top = {token(11162, "\x20\xF0\x9F", -0.1f),
                   token(65, "A", -std::numeric_limits<float>::infinity())};
  const Both both = play(chat(R"("logprobs":true,"top_logprobs":2)"),
                         {{0, report(0, "", {tokens[0], tokens[1]})},
                          {0, report(0, " \xF0\x9F\xA6\x99", {tokens[2]}, FinishReason::kLength)}});
  const json& content = both.body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["bytes"], json::parse("[32,240,159]"));
  EXPECT_EQ(content[1]["bytes"], json::parse("[166]"));
  EXPECT_EQ(content[2]["bytes"], json::parse("[153]"));
  EXPECT_EQ(content[0]["token"], R"(bytes:\x20\xf0\x9f)");
  EXPECT_EQ(content[0]["logprob"], -0.1);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][1]["logprob"], kLogprobFloor);
  json streamed = json::array();
  for (const json& chunk : both.chunks) {
    for (const json& c : chunk["choices"]) {
      if (c["logprobs"].is_null()) continue;
      for (const json& e : c["logprobs"]["content"]) streamed.push_back(e);
    }
  }
  EXPECT_EQ(streamed, content);
  EXPECT_EQ(both.body["choices"][0]["message"]["content"], " \xF0\x9F\xA6\x99");
}

// C40 (d) (f)
TEST_F(AnswerTest, CompletionEchoWithLogprobs) {
  codec_.adds_bos = false;
  const ParsedRequest request = completion(R"("prompt":"añb","echo":true,"logprobs":1,"max_tokens":1)");
  ASSERT_EQ(request.generations[0].prompt.size(), 4u);  // the ñ has two bytes
  const std::vector<TokenReport> prompt = {token('a', "a", 0), token(0xC3, "\xC3", -1),
                                           token(0xB1, "\xB1", -2), token('b', "b", -3)};
  const Both both =
      play(request, {{0, report(0, "c", {token('c', "c", -4)}, FinishReason::kLength)}}, prompt);
  EXPECT_EQ(both.body["choices"][0]["text"],
            "a\xC3\xB1"
            "bc");
  const json& l = both.body["choices"][0]["logprobs"];
  EXPECT_EQ(l["token_logprobs"], json::parse("[null,-1,-2,-3,-4]"));
  EXPECT_EQ(l["text_offset"], json::parse("[0,1,1,2,3]"));
  EXPECT_EQ(l["tokens"].size(), 5u);
  EXPECT_EQ(l["tokens"][1], R"(bytes:\xc3)");
  EXPECT_TRUE(l["top_logprobs"][0].is_null());
  EXPECT_EQ(l["top_logprobs"][3], json::parse(R"({"b":-3})"));
  EXPECT_EQ(streamed_text(both, 0),
            "a\xC3\xB1"
            "bc");
  WireJson streamed = empty_completion_logprobs();
  for (const json& chunk : both.chunks) {
    for (const json& c : chunk["choices"]) {
      if (!c["logprobs"].is_null()) append_arrays(WireJson::parse(c["logprobs"].dump()), streamed);
    }
  }
  EXPECT_EQ(json::parse(streamed.dump()), l);
  EXPECT_EQ(both.body["object"], "text_completion");
  EXPECT_EQ(both.chunks[0]["object"], "text_completion");
}

TEST_F(AnswerTest, EchoHidesTheBosThatWasAdded) {
  const ParsedRequest request = completion(R"("prompt":"ab","echo":true,"logprobs":0)");
  const std::vector<TokenReport> prompt = {token(ByteCodec::kBos, "<bos>", 0), token('a', "a", -1),
                                           token('b', "b", -1)};
  const Both both = play(request, {{0, report(0, "c", {token('c', "c", -1)}, FinishReason::kStop)}}, prompt);
  EXPECT_EQ(both.body["choices"][0]["text"], "abc");
  EXPECT_EQ(both.body["choices"][0]["logprobs"]["text_offset"], json::parse("[0,0,1,2]"));
}

TEST_F(AnswerTest, SeveralPromptsAndChoices) {
  const ParsedRequest request = completion(R"("prompt":["a","b"],"n":2,"echo":true,"return_token_ids":true)");
  const Both both = play(request, {{1, report(0, "x", {token(1, "x", 0)}, FinishReason::kStop)},
                                   {0, report(1, "y", {token(2, "y", 0)}, FinishReason::kLength)},
                                   {0, report(0, "z", {token(3, "z", 0)}, FinishReason::kStop)},
                                   {1, report(1, "w", {token(4, "w", 0)}, FinishReason::kStop)}});
  const json& choices = both.body["choices"];
  ASSERT_EQ(choices.size(), 4u);
  const std::vector<std::string> texts = {"az", "ay", "bx", "bw"};
  const std::vector<int> ids = {3, 2, 1, 4};
  for (int i = 0; i < 4; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(choices[at]["index"], i);
    EXPECT_EQ(choices[at]["text"], texts[at]);
    EXPECT_EQ(choices[at]["token_ids"], json::array({ids[at]}));
    EXPECT_EQ(streamed_text(both, i), texts[at]);
  }
  EXPECT_EQ(both.body["usage"],
            json::parse(R"({"prompt_tokens":20,"completion_tokens":8,"total_tokens":28})"));
}

TEST(Logprobs, WireNumbers) {
  EXPECT_EQ(wire_logprob(-std::numeric_limits<float>::infinity()), kLogprobFloor);
  EXPECT_EQ(wire_logprob(std::nanf("")), kLogprobFloor);
  EXPECT_EQ(wire_logprob(-1e30f), kLogprobFloor);
  EXPECT_EQ(wire_logprob(1e-7f), 0.0);
  EXPECT_EQ(wire_logprob(-0.1f), -0.1);
}

TEST(CharacterOffsets, CountsCharacters) {
  CharacterOffsets o;
  EXPECT_EQ(o.next("a"), 0);
  EXPECT_EQ(o.next("\xF0\x9F"), 1);
  EXPECT_EQ(o.next("\xA6"), 1);
  EXPECT_EQ(o.next("\x99z"), 1);
  EXPECT_EQ(o.next(""), 3);
  EXPECT_EQ(o.next("\xC3\xB1q"), 3);
  EXPECT_EQ(o.next("q"), 5);
}

}  // namespace
}  // namespace lariat
