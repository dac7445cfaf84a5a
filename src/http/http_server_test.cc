// The server's endpoints and the shapes of its answers, over real sockets.
#include "http/http_server.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>

#include "http/http_server_fixture_test_util.h"

namespace lariat {
namespace {

using ::testing::HasSubstr;

TEST_F(HttpServerTest, PlainEndpoints) {
  start();
  const RawResponse models = get("/v1/models");
  EXPECT_EQ(models.status, 200);
  EXPECT_EQ(json(models.body)["data"][0]["id"], "toy");
  EXPECT_EQ(json(get("/v1/models/toy").body)["object"], "model");
  expect_error(get("/v1/models/other"), 404, "another model");
  EXPECT_EQ(json(get("/health").body)["status"], "ok");
  const nlohmann::json state = json(get("/v1/lariat/state").body);
  EXPECT_EQ(state["ranks"].size(), 2u);
  EXPECT_EQ(state["restarts"], 2);
  EXPECT_EQ(state["ranks"][1]["comm_wait_total_us"], 2'500'000);
  EXPECT_EQ(state["last_recovery"], nlohmann::json::parse(R"({"epoch":2,"rank":1,"cause":"rank 1 is gone",
      "ended_ms":10,"formed_ms":20,"recomputed_ms":null})"));
  EXPECT_EQ(json(post("/tokenize", R"({"prompt":"ab"})").body)["count"], 3);
  EXPECT_EQ(json(post("/detokenize", R"({"tokens":[97,98]})").body)["prompt"], "ab");
  expect_error(post("/tokenize", "{}"), 400, "no prompt");

  const RawResponse metrics = get("/metrics?x=1");
  for (const char* name :
       {"lariat_requests_running 0\n", "lariat_requests_waiting 0\n", "lariat_kv_pages_used 0\n",
        "lariat_kv_pages_total 1000\n", "lariat_time_to_first_token_seconds_count 0\n",
        "lariat_http_requests_total{endpoint=\"models\",status=\"200\"} 1\n", "lariat_ranks 2\n",
        "lariat_epoch 3\n", "lariat_rank_ready{rank=\"0\"} 1\n", "lariat_rank_restarts_total{rank=\"1\"} 2\n",
        "lariat_rank_heartbeat_age_seconds{rank=\"0\"} 0.25\n",
        "lariat_rank_comm_wait_seconds{rank=\"1\"} 0.0015\n",
        "lariat_rank_comm_wait_seconds_total{rank=\"1\"} 2.5\n",
        "lariat_rank_resident_bytes{rank=\"0\"} 4096\n"}) {
    EXPECT_THAT(metrics.body, HasSubstr(name));
  }
  EXPECT_THAT(metrics.body, ::testing::Not(HasSubstr("nan")));
  engine_.set_ready(false);
  const RawResponse forming = get("/health");
  EXPECT_EQ(forming.status, 503);
  EXPECT_EQ(json(forming.body)["reason"], "rank 0 is starting");
  EXPECT_THAT(get("/metrics").body, HasSubstr("lariat_rank_ready{rank=\"0\"} 0\n"));
}

TEST_F(HttpServerTest, UnknownPathsAndMethods) {
  start();
  expect_error(get("/"), 404, "/");
  expect_error(get("/v1/embeddings"), 404, "embeddings");
  expect_error(get("/v1/models/"), 404, "models/");
  const RawResponse wrong = get("/v1/chat/completions");
  expect_error(wrong, 405, "GET chat");
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  const RawResponse patch = ask("PATCH /health HTTP/1.1\r\nHost: x\r\n\r\n");
  expect_error(patch, 405, "PATCH health");
  EXPECT_EQ(patch.headers.at("allow"), "GET, HEAD");
  expect_error(ask("OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"), 405, "OPTIONS");
  RawClient head = client();
  EXPECT_TRUE(head.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + RawClient::get("/health")));
  const RawResponse first = head.read_head();
  EXPECT_EQ(first.status, 200);
  EXPECT_NE(first.headers.at("content-length"), "0");
  EXPECT_EQ(head.read_response().status, 200);  // no body stood between them
}

TEST_F(HttpServerTest, ChatWholeAndStreamedAgree) {
  start({.stop_after = 5});
  const RawResponse whole = ask(chat(R"("max_tokens":9)"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const nlohmann::json body = json(whole.body);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "abcde");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(body["id"], whole.headers.at("x-request-id"));

  const RawResponse streamed =
      ask(chat(R"("max_tokens":9,"stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(streamed.headers.at("content-type"), "text/event-stream");
  const auto list = events(streamed.body);
  ASSERT_GE(list.size(), 4u);
  EXPECT_EQ(list.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(text_of_stream(list), "abcde");
  EXPECT_EQ(list.back(), "[DONE]");
  const nlohmann::json& usage = list[list.size() - 2];
  EXPECT_EQ(usage["choices"].size(), 0u);
  EXPECT_EQ(usage["usage"], body["usage"]);
  EXPECT_EQ(list[list.size() - 3]["choices"][0]["finish_reason"], "stop");

  const auto plain = events(ask(chat(R"("max_tokens":2,"stream":true)")).body);
  EXPECT_EQ(plain[plain.size() - 2]["choices"][0]["finish_reason"], "length");
  for (const auto& e : plain) EXPECT_FALSE(e.is_object() && e.contains("usage"));
}

TEST_F(HttpServerTest, CompletionsWithSeveralPromptsEchoAndLogprobs) {
  start({.stop_after = 2});
  const nlohmann::json body =
      json(post("/v1/completions", R"({"prompt":["xy","z"],"n":2,"echo":true,"logprobs":1})").body);
  ASSERT_EQ(body["choices"].size(), 4u);
  EXPECT_EQ(body["choices"][0]["text"], "xyab");
  EXPECT_EQ(body["choices"][1]["text"], "xybc");
  EXPECT_EQ(body["choices"][2]["text"], "zab");
  EXPECT_EQ(body["choices"][3]["index"], 3);
  const nlohmann::json& logprobs = body["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"].size(), 5u);  // BOS, x, y, a, b
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["text_offset"], nlohmann::json::parse("[0,0,1,2,3]"));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(json(post("/v1/completions", R"({"prompt":[120,121],"return_token_ids":true})")
                     .body)["choices"][0]["token_ids"],
            nlohmann::json::parse("[97,98]"));
}

// C36: nothing is generated, and the prompt's logprobs come all the same.
TEST_F(HttpServerTest, MaxTokensZero) {
  start();
  const std::string fields = R"({"prompt":"xy","max_tokens":0,"echo":true,"logprobs":1)";
  const nlohmann::json body = json(post("/v1/completions", fields + "}").body);
  EXPECT_EQ(body["choices"][0]["text"], "xy");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  const auto list = events(post("/v1/completions", fields + R"(,"stream":true})").body);
  EXPECT_EQ(list.front()["choices"][0]["text"], "xy");
  EXPECT_EQ(json(ask(chat(R"("max_tokens":0)")).body)["choices"][0]["message"]["content"], "");
}

TEST_F(HttpServerTest, RefusalsKeepTheirStatusWithStream) {
  start({.refuse = make_error(Errc::kResourceExhausted, "the queue is full")});
  for (const char* stream : {"true", "false"}) {
    const RawResponse full = ask(chat(std::string(R"("stream":)") + stream));
    expect_error(full, 429, stream);
    EXPECT_TRUE(full.headers.contains("retry-after"));
  }
  engine_.set_script({.refuse = make_error(Errc::kUnavailable, "forming")});
  expect_error(ask(chat(R"("stream":true)")), 503, "forming");
  engine_.set_script({.refuse = make_error(Errc::kInvalidArgument, "300 tokens never fit into 256")});
  expect_error(ask(chat(R"("stream":true)")), 400, "never fits");
  expect_error(ask(chat(R"("stream":true,"n":0)")), 400, "n");
  expect_error(ask(chat(R"("model":"gpt")")), 404, "model");
  expect_healthy();
}

// C44: a failure is an error event without a finish; before the first token it is a status.
TEST_F(HttpServerTest, FailuresInTheEngine) {
  start({.fail_after = 3});
  expect_error(ask(chat("")), 500, "whole");
  // A stream that has begun: the failure comes once the client has seen a token.
  engine_.set_script({.step = Ms(5)});
  RawClient c = client();
  ASSERT_TRUE(c.send(chat(R"("stream":true)")));
  EXPECT_EQ(c.read_head().status, 200);
  std::string stream = c.read_chunk();
  engine_.set_script({.fail_after = 0});
  stream += c.read_chunks();
  const auto list = events(stream);
  ASSERT_FALSE(list.empty());
  EXPECT_EQ(list.back()["error"]["message"], "rank 0 was lost");
  EXPECT_THAT(text_of_stream(list), ::testing::StartsWith("a"));
  for (const auto& e : list) {
    EXPECT_TRUE(e.contains("error") || e["choices"][0]["finish_reason"].is_null());
  }
  EXPECT_EQ(c.read_to_end(), "");
  EXPECT_TRUE(c.ended());
  engine_.set_script({.fail_after = 0});
  expect_error(ask(chat(R"("stream":true)")), 500, "at once");
}

TEST_F(HttpServerTest, SilentStreamsGetComments) {
  HttpOptions options;
  options.limits.keepalive_interval = Ms(20);
  start({.step = Ms(50), .prefill_steps = 4}, options);
  const RawResponse r = ask(chat(R"("stream":true,"max_tokens":2)"));
  EXPECT_THAT(r.body, ::testing::StartsWith(": keep-alive\n\n"));
  EXPECT_EQ(text_of_stream(events(r.body)), "ab");
}

TEST_F(HttpServerTest, CancelByAnotherClient) {
  start({.step = Ms(1)});
  expect_error(post("/v1/lariat/cancel/chatcmpl-none", ""), 404, "unknown");
  RawClient c = client();
  ASSERT_TRUE(c.send(chat(R"("stream":true)")));
  const std::string id = c.read_head().headers.at("x-request-id");
  EXPECT_FALSE(c.read_chunk().empty());
  const RawResponse cancelled = post("/v1/lariat/cancel/" + id, "");
  EXPECT_EQ(cancelled.status, 200) << cancelled.body;
  EXPECT_TRUE(engine_.wait_rows(0, Ms(1000)));
  EXPECT_EQ(events(c.read_chunks()).back()["error"]["code"], "request_cancelled");
  expect_error(post("/v1/lariat/cancel/" + id, ""), 404, "ended");
}

TEST_F(HttpServerTest, RequestTimeout) {
  HttpOptions options;
  options.limits.request_timeout = Ms(100);
  start({.step = Ms(10)}, options);
  expect_error(ask(chat("")), 504, "whole");
  EXPECT_EQ(events(ask(chat(R"("stream":true)")).body).back()["error"]["code"], "deadline_exceeded");
  EXPECT_TRUE(engine_.wait_rows(0, Ms(1000)));
}

TEST_F(HttpServerTest, ApiKeys) {
  HttpOptions options;
  options.api_keys = {"sk-one", "sk-two"};
  start({.stop_after = 1}, options);
  expect_error(get("/v1/models"), 401, "none");
  for (const char* header : {"Authorization: Bearer sk-on\r\n", "Authorization: Bearer sk-onee\r\n",
                             "Authorization: Bearer \r\n", "Authorization: Bearer sk-onesk-one\r\n",
                             "Authorization: sk-one\r\n", "Authorization: Basic sk-one\r\n"}) {
    expect_error(ask(RawClient::get("/v1/models", header)), 401, header);
    expect_error(ask(RawClient::get("/metrics", header)), 401, header);
  }
  EXPECT_EQ(ask(RawClient::get("/v1/models", "Authorization: Bearer sk-one\r\n")).status, 200);
  EXPECT_EQ(ask(RawClient::get("/v1/models", "Authorization: Bearer sk-two\r\n")).status, 200);
  EXPECT_EQ(get("/health").status, 200);
  // Refused before its body is read.
  RawClient c = client();
  ASSERT_TRUE(c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"));
  expect_error(c.read_response(), 401, "large body of a stranger");
}

TEST(ApiKeyFile, Forms) {
  const auto path = std::filesystem::temp_directory_path() / ("lariat-keys-" + std::to_string(getpid()));
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_api_keys(path.string());
  };
  EXPECT_EQ(read("# keys\n\n  sk-a \r\nsk-b").value(), (std::vector<std::string>{"sk-a", "sk-b"}));
  EXPECT_FALSE(read("# none\n\n").ok());
  std::filesystem::remove(path);
  EXPECT_EQ(read_api_keys(path.string()).error().code, Errc::kNotFound);
}

TEST_F(HttpServerTest, DrainLetsAnswersFinish) {
  start({.step = Ms(5), .stop_after = 40});
  RawClient busy = client(), idle = client();
  ASSERT_TRUE(idle.send(RawClient::get("/health")));
  EXPECT_EQ(idle.read_response().status, 200);
  ASSERT_TRUE(busy.send(chat(R"("stream":true)")));
  EXPECT_EQ(busy.read_head().status, 200);
  std::thread stopping([&] { server_->stop(Ms(20'000)); });
  EXPECT_EQ(events(busy.read_chunks()).back(), "[DONE]");
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_TRUE(idle.ended());
  busy.close();
  stopping.join();
  EXPECT_FALSE(client().connected());
}

TEST_F(HttpServerTest, EndOfTheDrainEndsAnswers) {
  start({.step = Ms(5)});
  RawClient stream = client(), whole = client();
  ASSERT_TRUE(stream.send(chat(R"("stream":true)")));
  ASSERT_TRUE(whole.send(chat("")));
  EXPECT_EQ(stream.read_head().status, 200);
  ASSERT_TRUE(engine_.wait_submitted(2, Ms(5000)));
  std::thread stopping([&] { server_->stop(Ms(50)); });
  EXPECT_EQ(events(stream.read_chunks()).back()["error"]["code"], "unavailable");
  expect_error(whole.read_response(), 503, "whole");
  stopping.join();
  EXPECT_TRUE(engine_.wait_rows(0, Ms(0)));
}

TEST_F(HttpServerTest, StartRefusals) {
  HttpOptions options;
  options.host = "no address";
  EXPECT_EQ(HttpServer::start(options, engine_, byte_model(codec_)).error().code, Errc::kInvalidArgument);
  start();
  options.host = "127.0.0.1";
  options.port = server_->port();
  const auto taken = HttpServer::start(options, engine_, byte_model(codec_));
  EXPECT_EQ(taken.error().code, Errc::kUnavailable);
  EXPECT_THAT(taken.error().message, HasSubstr(std::to_string(server_->port())));
}

// A codec that does not come back from a prompt until it is let go.
class SlowCodec : public ByteCodec {
 public:
  Result<std::vector<int32_t>> encode(std::string_view text) const override {
    if (text == "slow") {
      entered.count_down();
      release.wait();
    }
    return ByteCodec::encode(text);
  }
  mutable std::latch entered{1}, release{1};
};

TEST_F(HttpServerTest, ReadingABigPromptStopsNobodyElse) {
  engine_.set_script({.stop_after = 50});
  SlowCodec slow;
  server_ = std::move(HttpServer::start({}, engine_, byte_model(slow))).value();
  RawClient c = client();
  ASSERT_TRUE(c.send(RawClient::post("/v1/completions", R"({"prompt":"slow"})")));
  slow.entered.wait();
  EXPECT_EQ(events(ask(chat(R"("stream":true)")).body).back(), "[DONE]");
  expect_healthy();
  slow.release.count_down();
  EXPECT_EQ(c.read_response().status, 200);
}

TEST_F(HttpServerTest, ManyStreamsAtOnce) {
  start({.step = Ms(2), .stop_after = 60});
  constexpr int kStreams = 300;
  std::vector<RawClient> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(client());
    ASSERT_TRUE(clients.back().send(chat(R"("stream":true)")));
  }
  std::string expected;
  for (int i = 0; i < 60; ++i) expected += static_cast<char>('a' + i % 26);
  for (RawClient& c : clients) {
    const RawResponse r = c.read_response(Ms(30'000));
    ASSERT_EQ(r.status, 200);
    const auto list = events(r.body);
    ASSERT_EQ(text_of_stream(list), expected);
    ASSERT_EQ(list.back(), "[DONE]");
  }
  EXPECT_TRUE(engine_.wait_rows(0, Ms(1000)));
  EXPECT_THAT(get("/metrics").body, HasSubstr("lariat_time_to_first_token_seconds_count 300\n"));
}

}  // namespace
}  // namespace lariat
