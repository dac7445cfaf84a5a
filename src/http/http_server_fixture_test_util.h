// A server on a free port over a toy engine, for the tests of http/.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/byte_codec_test_util.h"
#include "http/http_server.h"
#include "http/raw_client_test_util.h"
#include "http/toy_engine_test_util.h"

namespace lariat {

class HttpServerTest : public ::testing::Test {
 protected:
  using Ms = std::chrono::milliseconds;

  void start(ToyEngine::Script script = {}, HttpOptions options = {}, int64_t context = 100'000) {
    engine_.set_script(std::move(script));
    auto server = HttpServer::start(std::move(options), engine_, byte_model(codec_, context));
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
  }
  RawClient client(int receive_buffer = 0) { return RawClient(server_->port(), receive_buffer); }
  RawResponse ask(const std::string& bytes) {
    RawClient c = client();
    EXPECT_TRUE(c.send(bytes));
    return c.read_response();
  }
  RawResponse get(const std::string& path) { return ask(RawClient::get(path)); }
  RawResponse post(const std::string& path, const std::string& body) {
    return ask(RawClient::post(path, body));
  }
  static std::string chat(const std::string& fields) {
    const std::string body =
        R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
    return RawClient::post("/v1/chat/completions", body);
  }
  static nlohmann::json json(const std::string& text) {
    nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
    EXPECT_FALSE(j.is_discarded()) << text;
    return j;
  }
  // The JSON of each data: line of a whole stream, "[DONE]" as a string.
  static std::vector<nlohmann::json> events(const std::string& stream) {
    std::vector<nlohmann::json> out;
    for (size_t at = 0; at < stream.size();) {
      const size_t end = stream.find("\n\n", at);
      if (end == std::string::npos) {
        ADD_FAILURE() << "an unfinished event: " << stream.substr(at);
        break;
      }
      const std::string event = stream.substr(at, end - at);
      at = end + 2;
      if (event.starts_with(":")) continue;
      EXPECT_TRUE(event.starts_with("data: ")) << event;
      const std::string data = event.substr(std::min<size_t>(6, event.size()));
      out.push_back(data == "[DONE]" ? nlohmann::json(data) : json(data));
    }
    return out;
  }
  static std::string text_of_stream(const std::vector<nlohmann::json>& events) {
    std::string text;
    for (const auto& e : events) {
      if (!e.is_object() || !e.contains("choices")) continue;
      for (const auto& c : e["choices"]) text += c["delta"].value("content", "");
    }
    return text;
  }
  void expect_error(const RawResponse& r, int status, const std::string& what) {
    EXPECT_EQ(r.status, status) << what;
    EXPECT_EQ(r.headers.count("content-type") ? r.headers.at("content-type") : "", "application/json")
        << what;
    const nlohmann::json body = json(r.body);
    ASSERT_TRUE(body.contains("error")) << what << r.body;
    for (const char* key : {"message", "type", "param", "code"})
      EXPECT_TRUE(body["error"].contains(key)) << what;
    EXPECT_FALSE(body["error"]["message"].get<std::string>().empty()) << what;
  }
  void expect_healthy() { EXPECT_EQ(get("/health").status, 200); }

  ByteCodec codec_;
  ToyEngine engine_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace lariat
