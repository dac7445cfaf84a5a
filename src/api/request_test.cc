// Request bodies: what is accepted, and each refusal by field (docs/api.md).
#include "api/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/request_fixture_test_util.h"

namespace lariat {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(RequestTest, Defaults) {
  const ParsedRequest r = chat("");
  const GenerateRequest& g = r.generations.at(0);
  EXPECT_EQ(prompt_text(r), "<user:hi>");
  EXPECT_FLOAT_EQ(g.sampling.temperature, 1);
  EXPECT_FLOAT_EQ(g.sampling.top_p, 1);
  EXPECT_EQ(g.sampling.top_k, 0);
  EXPECT_EQ(g.max_tokens, 4096 - 10 + 1);  // to the context: BOS and nine characters stand before it
  EXPECT_EQ(g.n, 1);
  EXPECT_EQ(g.top_logprobs, -1);
  EXPECT_FALSE(g.seed.has_value());
  EXPECT_THAT(g.end_ids, ElementsAre(ByteCodec::kEnd));
  EXPECT_FALSE(r.stream);
  EXPECT_THAT(r.id, ::testing::MatchesRegex("chatcmpl-[0-9a-f]{32}"));
  EXPECT_NE(r.id, chat("").id);
  EXPECT_EQ(completion("").generations[0].max_tokens, 16);
  EXPECT_THAT(completion("").id, ::testing::MatchesRegex("cmpl-[0-9a-f]{32}"));
}

TEST_F(RequestTest, TheModelsDefaultsFillWhatIsAbsent) {
  model_.defaults.temperature = 0.6f;
  model_.defaults.top_p = 0.95f;
  model_.defaults.top_k = 20;
  model_.defaults.min_p = 0.05f;
  model_.defaults.repetition_penalty = 1.1f;
  model_.defaults.end_ids = {128001, 128008, 128009};
  const SamplingSettings s = chat("").generations[0].sampling;
  EXPECT_FLOAT_EQ(s.temperature, 0.6f);
  EXPECT_FLOAT_EQ(s.top_p, 0.95f);
  EXPECT_EQ(s.top_k, 20);
  EXPECT_FLOAT_EQ(s.min_p, 0.05f);
  EXPECT_FLOAT_EQ(s.repetition_penalty, 1.1f);
  EXPECT_THAT(chat("").generations[0].end_ids, ElementsAre(128001, 128008, 128009));
  EXPECT_FLOAT_EQ(chat(R"("temperature":null)").generations[0].sampling.temperature, 0.6f);
  EXPECT_FLOAT_EQ(chat(R"("temperature":0.1)").generations[0].sampling.temperature, 0.1f);
  EXPECT_EQ(chat(R"("top_k":-1)").generations[0].sampling.top_k, 0);
}

// C34 (a): null is the same as absent, for every field.
TEST_F(RequestTest, NullIsAbsent) {
  std::string fields;
  for (const char* name : {"model",
                           "temperature",
                           "top_p",
                           "max_tokens",
                           "max_completion_tokens",
                           "stop",
                           "seed",
                           "n",
                           "stream",
                           "stream_options",
                           "logprobs",
                           "top_logprobs",
                           "tools",
                           "tool_choice",
                           "response_format",
                           "logit_bias",
                           "presence_penalty",
                           "frequency_penalty",
                           "user",
                           "metadata",
                           "store",
                           "audio",
                           "modalities",
                           "prediction",
                           "service_tier",
                           "parallel_tool_calls",
                           "functions",
                           "function_call",
                           "reasoning_effort",
                           "verbosity",
                           "web_search_options",
                           "top_k",
                           "min_p",
                           "repetition_penalty",
                           "ignore_eos",
                           "min_tokens",
                           "cache_salt",
                           "return_token_ids",
                           "chat_template_kwargs",
                           "enable_thinking",
                           "safety_identifier",
                           "prompt_cache_key",
                           "moderation",
                           "prompt_cache_options",
                           "prompt_cache_retention",
                           "prompt",
                           "best_of",
                           "suffix",
                           "echo",
                           "chat_template",
                           "typical_p",
                           "skip_special_tokens"}) {
    fields += std::string(fields.empty() ? "" : ",") + "\"" + name + "\":null";
  }
  const ParsedRequest with = chat(fields), without = chat("");
  EXPECT_EQ(with.generations[0].prompt, without.generations[0].prompt);
  EXPECT_EQ(with.generations[0].max_tokens, without.generations[0].max_tokens);
  EXPECT_EQ(with.generations[0].top_logprobs, -1);
  EXPECT_FALSE(with.stream);
  completion(
      R"("suffix":null,"best_of":null,"echo":null,"logprobs":null,"stop":null,"n":null,"max_tokens":null)");
}

// C34 (b)
TEST_F(RequestTest, PromptForms) {
  for (const char* prompt : {"[-1]",
                             "[300]",
                             "[4294967301]",
                             "[18446744073709551615]",
                             "[true]",
                             "[1.5]",
                             R"(["a",3])",
                             R"([3,"a"])",
                             "[[1],2]",
                             R"([[1],"a"])",
                             "[]",
                             "[[]]",
                             "[[1],[]]",
                             "{}",
                             "7",
                             "true",
                             "[null]",
                             "[[null]]",
                             "[[[1]]]",
                             "null"}) {
    expect_prompt_refused(prompt);
  }
  const auto parse = [&](const std::string& p) {
    return good(parse_completion(R"({"prompt":)" + p + R"(,"n":2})", model_), p);
  };
  EXPECT_THAT(parse("[1,2]").generations.at(0).prompt, ElementsAre(1, 2));
  const ParsedRequest ids = parse("[[1,2],[3]]");
  ASSERT_EQ(ids.generations.size(), 2u);
  EXPECT_THAT(ids.generations[0].prompt, ElementsAre(1, 2));
  EXPECT_THAT(ids.generations[1].prompt, ElementsAre(3));
  EXPECT_NE(ids.generations[0].id, ids.generations[1].id);
  const ParsedRequest texts = parse(R"(["a","b"])");
  ASSERT_EQ(texts.generations.size(), 2u);
  EXPECT_EQ(prompt_text(texts, 1), "b");
  EXPECT_THAT(parse(R"("")").generations.at(0).prompt, ElementsAre(ByteCodec::kBos));
  EXPECT_THAT(parse(R"([""])").generations.at(0).prompt, ElementsAre(ByteCodec::kBos));
  codec_.adds_bos = false;
  expect_prompt_refused(R"("")");
  expect_prompt_refused(R"([""])");
  const ApiError deep = bad(parse_completion(R"({"prompt":[[1,2],[3,-1]]})", model_), "path");
  EXPECT_THAT(deep.message, HasSubstr("prompt[1][1]"));
}

// C34 (c) (d) (e)
TEST_F(RequestTest, EmptyMessagesUnknownFieldsAndBothLimits) {
  expect_refused(parse_chat(R"({"messages":[]})", model_), "empty", "messages");
  expect_refused(parse_chat("{}", model_), "none", "messages");
  chat(R"("no_such_field":{"a":[1,2]},"another":"x")");
  EXPECT_EQ(chat(R"("max_tokens":7,"max_completion_tokens":7)").generations[0].max_tokens, 7);
  EXPECT_EQ(chat(R"("max_completion_tokens":9)").generations[0].max_tokens, 9);
  expect_chat_refused(R"("max_tokens":7,"max_completion_tokens":8)", "max_completion_tokens");
}

// C35
TEST_F(RequestTest, ChoicesAndSeed) {
  for (const char* n : {"0", "-1", "129", "true", "1.5", "1.0", "\"2\"", "1e2", "[1]"}) {
    expect_chat_refused(std::string(R"("n":)") + n, "n");
    expect_completion_refused(std::string(R"("n":)") + n, "n");
  }
  EXPECT_EQ(chat(R"("n":3)").generations[0].n, 3);
  EXPECT_EQ(chat(R"("n":128)").n, 128);
  expect_refused(parse_completion(R"({"prompt":["a","b"],"n":65})", model_), "product", "n");
  EXPECT_EQ(chat(R"("seed":-1)").generations[0].seed, UINT64_MAX);
  EXPECT_EQ(chat(R"("seed":9223372036854775807)").generations[0].seed, uint64_t{INT64_MAX});
  EXPECT_EQ(chat(R"("seed":0)").generations[0].seed, 0u);
  expect_chat_refused(R"("seed":9223372036854775808)", "seed");
  expect_chat_refused(R"("seed":1.5)", "seed");
}

// C36
TEST_F(RequestTest, PromptAgainstContext) {
  model_.context_tokens = 64;
  const auto with = [&](int tokens, const std::string& fields) {
    std::string ids = "1";
    for (int i = 1; i < tokens; ++i) ids += ",1";
    return parse_completion("{\"prompt\":[" + ids + "]," + fields + "}", model_);
  };
  for (const char* stream : {"true", "false"}) {
    const std::string one = std::string(R"("max_tokens":1,"stream":)") + stream;
    EXPECT_EQ(good(with(62, one), "62").generations[0].max_tokens, 1);
    EXPECT_EQ(good(with(63, one), "63").generations[0].max_tokens, 1);
    EXPECT_EQ(good(with(64, one), "64").generations[0].max_tokens, 1);
    for (const int tokens : {65, 200}) {
      const ApiError e = bad(with(tokens, one), "over");
      EXPECT_EQ(e.status, 400);
      EXPECT_EQ(e.code, "context_length_exceeded");
      EXPECT_EQ(e.param, "prompt");
      EXPECT_THAT(e.message, AllOf(HasSubstr(std::to_string(tokens)), HasSubstr("64")));
    }
    const std::string hundred = std::string(R"("max_tokens":100,"stream":)") + stream;
    EXPECT_EQ(good(with(60, hundred), "60").generations[0].max_tokens, 5);
  }
  EXPECT_EQ(completion(R"("max_tokens":0)").generations[0].max_tokens, 0);
  EXPECT_EQ(completion(R"("max_tokens":0,"echo":true,"logprobs":1)").generations[0].prompt_logprobs, 1);
  EXPECT_EQ(chat(R"("max_completion_tokens":0)").generations[0].max_tokens, 0);
  expect_completion_refused(R"("max_tokens":-1)", "max_tokens");
  expect_chat_refused(R"("max_completion_tokens":-1)", "max_completion_tokens");
  const ApiError e = bad(
      parse_chat(R"({"messages":[{"role":"user","content":")" + std::string(80, 'x') + "\"}]}", model_), "");
  EXPECT_EQ(e.code, "context_length_exceeded");
  EXPECT_EQ(e.param, "messages");
}

// C28: the memory may hold less than the context.
TEST_F(RequestTest, PromptAgainstMemory) {
  // What `--context 1024 --page-tokens 16` with a pool of 16 pages serves.
  model_.context_tokens = 1024;
  model_.kv_tokens_max = 256;
  EXPECT_EQ(chat("").generations[0].max_tokens, 256 - 10 + 1);
  const ApiError e = bad(parse_completion(R"({"prompt":")" + std::string(299, 'x') + "\"}", model_), "");
  EXPECT_EQ(e.status, 400);
  EXPECT_EQ(e.param, "prompt");
  EXPECT_THAT(e.message, AllOf(HasSubstr("300"), HasSubstr("KV memory holds 256"), HasSubstr("1024"),
                               ::testing::StartsWith("prompt: ")));
  // A pool of several contexts does not bind.
  model_.kv_tokens_max = 8192;
  const ApiError over = bad(parse_completion(R"({"prompt":")" + std::string(1024, 'x') + "\"}", model_), "");
  EXPECT_THAT(over.message, AllOf(HasSubstr("1025"), HasSubstr("context length is 1024"),
                                  ::testing::Not(HasSubstr("memory"))));
}

// C39
TEST_F(RequestTest, LogitBias) {
  const auto bias = chat(R"("logit_bias":{"9":100,"10":-100,"299":0.5})").generations[0].sampling.logit_bias;
  EXPECT_THAT(
      bias, ::testing::UnorderedElementsAre(std::pair(9, 100.f), std::pair(10, -100.f), std::pair(299, .5f)));
  for (const char* b :
       {R"({"300":1})", R"({"-1":1})", R"({"abc":1})", R"({"9":101})", R"({"9":-100.5})", R"({"09":1})",
        R"({"+9":1})", R"({" 9":1})", R"({"9 ":1})", R"({"":1})", R"({"9":"1"})", R"({"9":null})",
        R"({"9":true})", R"({"99999999999999999999":1})", "[]", "[1]", "\"x\""}) {
    expect_chat_refused(std::string(R"("logit_bias":)") + b, "logit_bias");
  }
}

// C40 (b)
TEST_F(RequestTest, Logprobs) {
  expect_chat_refused(R"("top_logprobs":3)", "top_logprobs");
  expect_chat_refused(R"("top_logprobs":3,"logprobs":false)", "top_logprobs");
  expect_chat_refused(R"("logprobs":true,"top_logprobs":21)", "top_logprobs");
  expect_chat_refused(R"("logprobs":true,"top_logprobs":-1)", "top_logprobs");
  expect_chat_refused(R"("logprobs":5)", "logprobs");
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":0)").generations[0].top_logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":true)").generations[0].top_logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":20)").generations[0].top_logprobs, 20);
  expect_completion_refused(R"("logprobs":true)", "logprobs");
  expect_completion_refused(R"("logprobs":21)", "logprobs");
  const ParsedRequest echo = completion(R"("logprobs":1,"echo":true)");
  EXPECT_EQ(echo.generations[0].prompt_logprobs, 1);
  EXPECT_THAT(echo.echo_text, ElementsAre("hi"));
  EXPECT_EQ(completion(R"("logprobs":0)").generations[0].top_logprobs, 0);
  EXPECT_EQ(completion(R"("logprobs":1)").generations[0].prompt_logprobs, -1);
}

// C42 (6)
TEST_F(RequestTest, Stop) {
  EXPECT_THAT(chat(R"("stop":"x")").generations[0].stop, ElementsAre("x"));
  EXPECT_THAT(chat(R"("stop":["x","yz"])").generations[0].stop, ElementsAre("x", "yz"));
  EXPECT_TRUE(chat(R"("stop":[])").generations[0].stop.empty());
  EXPECT_EQ(chat(R"("stop":["a","b","c","d"])").generations[0].stop.size(), 4u);
  for (const char* stop :
       {R"("")", R"([""])", R"(["a",""])", R"(["a","b","c","d","e"])", "5", "[5]", "{}", "[null]"}) {
    expect_chat_refused(std::string(R"("stop":)") + stop, "stop");
  }
  expect_chat_refused(R"("stop":")" + std::string(1025, 'x') + "\"", "stop");
}

TEST_F(RequestTest, RangesAndTypes) {
  for (const char* field : {R"("temperature":-0.1)",
                            R"("temperature":2.1)",
                            R"("temperature":"1")",
                            R"("temperature":true)",
                            R"("temperature":[])",
                            R"("top_p":-0.1)",
                            R"("top_p":1.1)",
                            R"("top_k":-2)",
                            R"("top_k":1.5)",
                            R"("min_p":1.5)",
                            R"("repetition_penalty":0)",
                            R"("presence_penalty":2.5)",
                            R"("frequency_penalty":-3)",
                            R"("stream":1)",
                            R"("stream":"true")",
                            R"("ignore_eos":0)",
                            R"("min_tokens":-1)",
                            R"("cache_salt":5)",
                            R"("user":5)",
                            R"("max_tokens":1.5)",
                            R"("max_tokens":"5")",
                            R"("max_tokens":99999999999)",
                            R"("return_token_ids":"yes")",
                            R"("stream_options":{"include_usage":true})",
                            R"("metadata":"x")",
                            R"("chat_template_kwargs":[])",
                            R"("enable_thinking":1)",
                            R"("model":5)"}) {
    const std::string name(field + 1, std::string_view(field).find('"', 1) - 1);
    expect_chat_refused(field, name);
  }
  const ApiError e =
      bad(parse_chat(chat_body(R"("stream":true,"stream_options":{"include_usage":1})"), model_), "");
  EXPECT_EQ(e.param, "stream_options");
  EXPECT_THAT(e.message, HasSubstr("stream_options.include_usage"));
  EXPECT_TRUE(chat(R"("stream":true,"stream_options":{"include_usage":true})").include_usage);
  EXPECT_FALSE(chat(R"("stream":true,"stream_options":{"include_usage":null})").include_usage);
  const SamplingSettings zero = chat(R"("top_p":0)").generations[0].sampling;
  EXPECT_EQ(zero.top_k, 1);
  EXPECT_EQ(chat(R"("min_tokens":5,"max_tokens":5)").generations[0].min_tokens, 5);
  expect_chat_refused(R"("min_tokens":6,"max_tokens":5)", "min_tokens");
}

// Whatever a client writes, an error has a few hundred bytes of it.
TEST_F(RequestTest, ErrorsAreShort) {
  const std::string text(1 << 20, 'x');
  codec_.template_fault = text;
  for (const std::string& fields :
       {"\"a\":\"" + text + "\x01\"", "\"model\":\"" + text + "\"", "\"logit_bias\":{\"" + text + "\":1}",
        "\"stream\":true,\"stream_options\":{\"" + text + "\":1}", std::string()}) {
    const ApiError e = bad(parse_chat(chat_body(fields), model_), fields.substr(0, 30));
    EXPECT_LT(error_body(e).size(), 1300u) << fields.substr(0, 30);
  }
  codec_.template_fault.clear();
  for (const std::string& message : {R"({"role":")" + text + R"(","content":"x"})",
                                     R"({"role":"user","content":[{"type":")" + text + R"("}]})"}) {
    const ApiError e = bad(parse_chat(R"({"messages":[)" + message + "]}", model_), message.substr(0, 30));
    EXPECT_LT(e.message.size(), 300u);
  }
}

TEST_F(RequestTest, Model) {
  EXPECT_EQ(chat(R"("model":"toy")").model, "toy");
  const ApiError e = bad(parse_chat(chat_body(R"("model":"gpt-9")"), model_), "");
  EXPECT_EQ(e.status, 404);
  EXPECT_EQ(e.code, "model_not_found");
  EXPECT_EQ(e.param, "model");
}

// C06
TEST_F(RequestTest, MessageShapes) {
  const auto parse = [&](const std::string& messages) {
    return parse_chat(R"({"messages":)" + messages + "}", model_);
  };
  const std::string call =
      R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"w","arguments":"{\"city\":\"Paris\"}"}}])";
  const std::string tool = R"({"role":"tool","tool_call_id":"c1","content":"42.69"})";
  for (const std::string& assistant :
       {R"({"role":"assistant","content":null,)" + call + "}", R"({"role":"assistant",)" + call + "}"}) {
    const ParsedRequest r =
        good(parse(R"([{"role":"user","content":"u"},)" + assistant + "," + tool + "]"), assistant);
    EXPECT_THAT(prompt_text(r), AllOf(HasSubstr("Paris"), HasSubstr("42.69")));
  }
  const ParsedRequest parts = good(
      parse(R"([{"role":"user","content":[{"type":"text","text":"ALPHA "},{"type":"text","text":"BETA"}]}])"),
      "parts");
  EXPECT_EQ(prompt_text(parts), "<user:ALPHA BETA>");
  EXPECT_EQ(prompt_text(good(parse(R"([{"role":"user","content":[]}])"), "no parts")), "<user:>");
  EXPECT_EQ(prompt_text(good(parse(R"([{"role":"developer","content":"d"}])"), "developer")), "<system:d>");
  const auto image = parse(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])");
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().status, 400);
  EXPECT_THAT(image.error().message, AllOf(HasSubstr("image_url"), HasSubstr("messages[0].content[0]")));
  for (const char* messages :
       {R"([5])",
        R"(["hi"])",
        R"([{"content":"x"}])",
        R"([{"role":"king","content":"x"}])",
        R"([{"role":"user"}])",
        R"([{"role":"user","content":null}])",
        R"([{"role":"user","content":5}])",
        R"([{"role":5,"content":"x"}])",
        R"([{"role":"user","content":["x"]}])",
        R"([{"role":"user","content":[{"type":"text"}]}])",
        R"([{"role":"user","content":[{"text":"x"}]}])",
        R"([{"role":"assistant","tool_calls":5}])",
        R"([{"role":"assistant","tool_calls":[5]}])",
        R"([{"role":"assistant","tool_calls":[{"id":"x"}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":5}}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":3}}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[1]}}]}])",
        R"([{"role":"assistant","content":"x","function_call":{"name":"f","arguments":"{}"}}])",
        R"([{"role":"assistant","content":"x","audio":{"id":"a"}}])",
        R"({})",
        R"("hi")"}) {
    expect_refused(parse(messages), messages, "messages");
  }
  const ApiError arguments = bad(
      parse(
          R"([{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":3}}]}])"),
      "arguments");
  EXPECT_THAT(arguments.message, ::testing::StartsWith("messages[1].tool_calls[0].function.arguments: "));
  good(parse(R"([{"role":"assistant","content":"x","function_call":null,"audio":null}])"), "null");
  codec_.template_fault = "roles must alternate";
  const ApiError e = bad(parse(R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])"), "raise");
  EXPECT_EQ(e.status, 400);
  EXPECT_EQ(e.param, "messages");
  EXPECT_EQ(e.message, "messages: roles must alternate");
}

TEST_F(RequestTest, ToolsReachTheTemplate) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"weather","parameters":{}}}])";
  EXPECT_THAT(prompt_text(chat(tools)), HasSubstr("weather"));
  EXPECT_THAT(prompt_text(chat(tools + R"(,"tool_choice":"none")")), ::testing::Not(HasSubstr("weather")));
  EXPECT_THAT(prompt_text(chat(R"("enable_thinking":false,"chat_template_kwargs":{"z":1,"k":2})")),
              HasSubstr(R"({"z":1,"k":2,"enable_thinking":false})"));
  for (const char* t : {"[5]", R"([{"type":"retrieval"}])", R"([{"type":"function"}])", "{}",
                        R"([{"type":"function","function":{}}])"}) {
    expect_chat_refused(std::string(R"("tools":)") + t, "tools");
  }
}

TEST_F(RequestTest, WithoutTokenizerOrTemplate) {
  codec_.chat = false;
  expect_chat_refused("", "messages");
  model_.codec = nullptr;
  expect_chat_refused("", "messages");
  expect_prompt_refused(R"("text")");
  EXPECT_THAT(good(parse_completion(R"({"prompt":[1,2]})", model_), "ids").generations[0].prompt,
              ElementsAre(1, 2));
}

TEST_F(RequestTest, BrokenBodies) {
  const std::string deep_array = R"({"prompt":)" + std::string(10000, '[') + std::string(10000, ']') + "}";
  std::string deep_object = R"({"prompt":"x","a":)";
  for (int i = 0; i < 10000; ++i) deep_object += R"({"a":)";
  for (const std::string& body : {std::string(),
                                  std::string("{"),
                                  std::string("nonsense"),
                                  std::string("[]"),
                                  std::string("\"x\""),
                                  std::string("5"),
                                  std::string("null"),
                                  std::string("{\"prompt\":\"a\nb\"}"),
                                  std::string("{\"prompt\":\"\x01\"}"),
                                  std::string("{\"prompt\":\"\0\"}", 13),
                                  std::string("{\"prompt\":\"\xff\"}"),
                                  std::string("{\"prompt\":\"\xed\xa0\x80\"}"),
                                  std::string(R"({"prompt":"\ud800"})"),
                                  std::string(R"({"prompt":"x","temperature":1e999})"),
                                  std::string(R"({"prompt":"x","temperature":NaN})"),
                                  std::string(R"({"prompt":"x","temperature":Infinity})"),
                                  std::string(R"({"prompt":"x"}{"prompt":"y"})"),
                                  std::string(R"({"prompt":"x",})"),
                                  deep_array,
                                  deep_object}) {
    const ApiError e = bad(parse_completion(body, model_), body.substr(0, 60));
    EXPECT_EQ(e.status, 400) << body.substr(0, 60);
    EXPECT_EQ(bad(parse_chat(body, model_), body.substr(0, 60)).status, 400);
  }
  // Escaped, they are text like any other.
  EXPECT_EQ(prompt_text(good(parse_completion("{\"prompt\":\"a\\u0000\\n\\u0001b\"}", model_), "escapes")),
            std::string("a\0\n\1b", 5));
}

TEST_F(RequestTest, TokenizeAndDetokenize) {
  EXPECT_EQ(answer_tokenize(R"({"prompt":"ab"})", model_).value(), R"({"tokens":[256,97,98],"count":3})");
  EXPECT_EQ(answer_detokenize(R"({"tokens":[97,240,159,98]})", model_).value(),
            "{\"prompt\":\"a\xEF\xBF\xBD"
            "b\"}");
  EXPECT_EQ(answer_detokenize(R"({"tokens":[]})", model_).value(), R"({"prompt":""})");
  for (const char* body : {"{}", R"({"prompt":5})", R"({"prompt":["a"]})", "x"}) {
    EXPECT_EQ(answer_tokenize(body, model_).error().status, 400) << body;
  }
  for (const char* body :
       {"{}", R"({"tokens":"x"})", R"({"tokens":[300]})", R"({"tokens":[-1]})", R"({"tokens":[true]})"}) {
    EXPECT_EQ(answer_detokenize(body, model_).error().status, 400) << body;
  }
}

TEST(ApiError, TableAndBody) {
  const auto status = [](Errc code) { return to_api_error(make_error(code, "m")).status; };
  EXPECT_EQ(status(Errc::kInvalidArgument), 400);
  EXPECT_EQ(status(Errc::kUnsupported), 400);
  EXPECT_EQ(status(Errc::kNotFound), 404);
  EXPECT_EQ(status(Errc::kResourceExhausted), 429);
  EXPECT_EQ(status(Errc::kUnavailable), 503);
  EXPECT_EQ(status(Errc::kInternal), 500);
  EXPECT_EQ(status(Errc::kCorruptData), 500);
  EXPECT_GT(to_api_error(make_error(Errc::kResourceExhausted, "m")).retry_after_s, 0);
  EXPECT_EQ(error_body(to_api_error(make_error(Errc::kInvalidArgument, "a\"b", "n"))),
            R"({"error":{"message":"a\"b","type":"invalid_request_error","param":"n","code":null}})");
}

}  // namespace
}  // namespace lariat
