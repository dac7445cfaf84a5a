// Fields that are known and not implemented: refused by name, or passing with the value that asks for
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/request_fixture_test_util.h"

namespace lariat {
namespace {

using ::testing::HasSubstr;

class KnownFieldsTest : public RequestTest {};

TEST_F(KnownFieldsTest, UnimplementedFieldsAreRefusedByName) {
  for (const char* field :
       {R"("tool_choice":"required")", R"("tool_choice":{"type":"function","function":{"name":"nope"}})",
        R"("response_format":{"type":"json_object"})", R"("response_format":{"type":"json_schema"})",
        R"("modalities":["text","audio"])", R"("audio":{"voice":"x"})", R"("prediction":{})",
        R"("web_search_options":{})", R"("store":true)", R"("service_tier":"flex")",
        R"("reasoning_effort":"low")", R"("verbosity":"high")", R"("parallel_tool_calls":false)",
        R"("functions":[{"name":"f"}])", R"("function_call":"auto")", R"("guided_json":{})",
        R"("use_beam_search":true)", R"("stream":true,"stream_options":{"include_obfuscation":true})",
        R"("echo":true)"}) {
    const ApiError e = bad(parse_chat(chat_body(field), model_), field);
    EXPECT_EQ(e.status, 400) << field;
    EXPECT_THAT(field, HasSubstr(e.param)) << field;
    EXPECT_FALSE(e.param.empty()) << field;
  }
  chat(R"("tool_choice":"auto","response_format":{"type":"text"},"modalities":["text"],"store":false,
        "service_tier":"auto","verbosity":"medium","parallel_tool_calls":true,"user":"u","metadata":{"a":"b"})");
  expect_completion_refused(R"("suffix":"x")", "suffix");
  expect_completion_refused(R"("best_of":3)", "best_of");
  completion(R"("suffix":"","best_of":1)");
  completion(R"("best_of":2,"n":2)");
}

// Of OpenAI's newer fields none passes in silence.
TEST_F(KnownFieldsTest, EveryFieldOfOpenAIIsReadOrRefused) {
  expect_chat_refused(R"("moderation":{"type":"auto"})", "moderation");
  expect_chat_refused(R"("prompt_cache_options":{"ttl":"1h"})", "prompt_cache_options");
  expect_chat_refused(R"("prompt_cache_retention":"24h")", "prompt_cache_retention");
  expect_chat_refused(R"("max_output_tokens":5)", "max_output_tokens");
  const std::string strict = R"("tools":[{"type":"function","function":{"name":"f","strict":)";
  expect_chat_refused(strict + "true}}]", "tools");
  chat(strict + "false}}]");
  chat(strict + "null}}]");
  const ApiError e =
      bad(parse_chat(chat_body(R"("stream":true,"stream_options":{"include_everything":true})"), model_), "");
  EXPECT_EQ(e.param, "stream_options");
  EXPECT_THAT(e.message, ::testing::StartsWith("stream_options.include_everything: "));
  EXPECT_TRUE(chat(R"("stream":true,"stream_options":{"other":null,"include_usage":true})").include_usage);
}

TEST_F(KnownFieldsTest, FieldsOfTheOtherEndpointAreRefusedWithItsName) {
  const auto names_it = [&](const ApiResult<ParsedRequest>& r, const std::string& field, const char* path) {
    const ApiError e = bad(r, field);
    EXPECT_EQ(e.status, 400) << field;
    EXPECT_THAT(field, HasSubstr("\"" + e.param + "\"")) << e.message;
    EXPECT_THAT(e.message, HasSubstr(path)) << field;
  };
  for (const char* field : {R"("prompt":"x")", R"("best_of":2)", R"("suffix":"x")", R"("echo":true)"}) {
    names_it(parse_chat(chat_body(field), model_), field, "/v1/completions");
  }
  for (const char* field : {R"("messages":[{"role":"user","content":"hi"}])",
                            R"("response_format":{"type":"json_object"})",
                            R"("tools":[{"type":"function","function":{"name":"f"}}])",
                            R"("tool_choice":"required")",
                            R"("parallel_tool_calls":false)",
                            R"("functions":[{"name":"f"}])",
                            R"("function_call":"auto")",
                            R"("top_logprobs":3)",
                            R"("reasoning_effort":"low")",
                            R"("verbosity":"high")",
                            R"("store":true)",
                            R"("service_tier":"flex")",
                            R"("modalities":["audio"])",
                            R"("audio":{})",
                            R"("prediction":{})",
                            R"("web_search_options":{})",
                            R"("moderation":{})",
                            R"("prompt_cache_options":{})",
                            R"("prompt_cache_retention":"24h")",
                            R"("chat_template_kwargs":{"a":1})",
                            R"("enable_thinking":true)",
                            R"("add_generation_prompt":false)"}) {
    names_it(parse_completion(completion_body(field), model_), field, "/v1/chat/completions");
  }
  // What asks for nothing passes in both.
  chat(R"("best_of":1,"suffix":"","echo":false)");
  completion(R"("tools":[],"tool_choice":"none","response_format":{"type":"text"},"store":false,
               "service_tier":"auto","verbosity":"medium","parallel_tool_calls":true,"chat_template_kwargs":{},
               "metadata":{"a":"b"},"safety_identifier":"s","prompt_cache_key":"k")");
}

TEST_F(KnownFieldsTest, FieldsOfOtherEnginesThatChangeTheAnswerAreRefused) {
  for (const char* field : {R"("chat_template":"{{ messages }}")",
                            R"("grammar":"root ::= x")",
                            R"("json_schema":{})",
                            R"("logits_processors":["x"])",
                            R"("typical_p":0.9)",
                            R"("mirostat":2)",
                            R"("mirostat_tau":3)",
                            R"("thinking_token_budget":5)",
                            R"("skip_special_tokens":false)",
                            R"("dry_multiplier":0.8)",
                            R"("xtc_probability":0.5)",
                            R"("top_n_sigma":1)",
                            R"("length_penalty":0.5)",
                            R"("early_stopping":true)",
                            R"("bad_words":["x"])",
                            R"("allowed_token_ids":[1])",
                            R"("stop_token_ids":[1])",
                            R"("repeat_penalty":1.1)",
                            R"("n_predict":5)",
                            R"("max_new_tokens":5)",
                            R"("do_sample":false)",
                            R"("regex":"a+")",
                            R"("typical_p":"1")",
                            R"("structured_outputs":{"json":{}})"}) {
    const std::string name(field + 1, std::string_view(field).find('"', 1) - 1);
    expect_chat_refused(field, name);
    expect_completion_refused(field, name);
  }
  // With the value at which they do nothing, as clients of those engines send them.
  const std::string idle =
      R"("chat_template":null,"grammar":"","logits_processors":[],"typical_p":1.0,"mirostat":0,"mirostat_tau":5.0,
         "mirostat_eta":0.1,"skip_special_tokens":true,"dry_multiplier":0,"xtc_probability":0.0,"length_penalty":1,
         "early_stopping":false,"use_beam_search":false,"stop_token_ids":[],"repeat_penalty":1,"n_predict":-1)";
  chat(idle);
  completion(idle);
  completion(R"("add_special_tokens":true)");
  expect_completion_refused(R"("add_special_tokens":false)", "add_special_tokens");
  chat(R"("add_special_tokens":false)");
  expect_chat_refused(R"("add_special_tokens":true)", "add_special_tokens");
}

}  // namespace
}  // namespace lariat
