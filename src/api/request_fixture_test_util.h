// Bodies around a field or two, parsed for a model of bytes: what is common to the tests of requests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "api/byte_codec_test_util.h"
#include "api/request.h"

namespace lariat {

class RequestTest : public ::testing::Test {
 protected:
  ByteCodec codec_;
  ModelContext model_ = byte_model(codec_);

  // The body of a chat with `fields` beside its messages.
  static std::string chat_body(const std::string& fields) {
    return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
  }
  static std::string completion_body(const std::string& fields) {
    return R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}";
  }
  ParsedRequest chat(const std::string& fields) {
    return good(parse_chat(chat_body(fields), model_), fields);
  }
  ParsedRequest completion(const std::string& fields) {
    return good(parse_completion(completion_body(fields), model_), fields);
  }
  static ParsedRequest good(ApiResult<ParsedRequest> r, const std::string& what) {
    if (r.ok()) return std::move(r).value();
    ADD_FAILURE() << what << ": " << r.error().message;
    ParsedRequest none;
    none.generations.emplace_back();
    return none;
  }
  static ApiError bad(const ApiResult<ParsedRequest>& r, const std::string& what) {
    if (!r.ok()) return r.error();
    ADD_FAILURE() << what << ": accepted";
    return {};
  }
  void expect_refused(const ApiResult<ParsedRequest>& r, const std::string& what, const std::string& param) {
    const ApiError e = bad(r, what);
    EXPECT_EQ(e.status, 400) << what;
    EXPECT_EQ(e.param, param) << what << ": " << e.message;
    EXPECT_EQ(e.type, "invalid_request_error") << what;
    EXPECT_THAT(e.message, ::testing::HasSubstr(param)) << what;
  }
  void expect_chat_refused(const std::string& fields, const std::string& param) {
    expect_refused(parse_chat(chat_body(fields), model_), fields, param);
  }
  void expect_completion_refused(const std::string& fields, const std::string& param) {
    expect_refused(parse_completion(completion_body(fields), model_), fields, param);
  }
  void expect_prompt_refused(const std::string& prompt) {
    expect_refused(parse_completion(R"({"prompt":)" + prompt + "}", model_), prompt, "prompt");
  }
  std::string prompt_text(const ParsedRequest& r, size_t g = 0) {
    std::string text;
    for (const int32_t id : r.generations[g].prompt) {
      if (id != ByteCodec::kBos) text += codec_.token_bytes(id);
    }
    return text;
  }
};

}  // namespace lariat
