// Hostile and unusual bytes on the wire: nothing crashes, every refusal has its status.
#include "http/http_server_fixture_test_util.h"
#include "http/request_parser.h"

namespace lariat {
namespace {

using namespace std::string_literals;

using ::testing::HasSubstr;

TEST_F(HttpServerTest, OneByteAtATime) {
  start({.stop_after = 3});
  RawClient c = client();
  const std::string request = chat(R"("max_tokens":5)");
  for (const char byte : request) ASSERT_TRUE(c.send(std::string_view(&byte, 1)));
  EXPECT_EQ(json(c.read_response().body)["choices"][0]["message"]["content"], "abc");
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start({.step = Ms(1), .stop_after = 3});
  RawClient c = client();
  ASSERT_TRUE(
      c.send(chat("") + RawClient::get("/v1/models") + chat(R"("stream":true)") + RawClient::get("/health")));
  EXPECT_EQ(json(c.read_response().body)["object"], "chat.completion");
  EXPECT_EQ(json(c.read_response().body)["object"], "list");
  EXPECT_EQ(events(c.read_response().body).back(), "[DONE]");
  EXPECT_EQ(json(c.read_response().body)["status"], "ok");
  // And one more on the same connection, much larger than what is read ahead.
  const std::string big = RawClient::post("/tokenize", R"({"prompt":")" + std::string(300'000, 'x') + "\"}");
  ASSERT_TRUE(c.send(chat("") + big));
  EXPECT_EQ(c.read_response().status, 200);
  EXPECT_EQ(json(c.read_response().body)["count"], 300'001);
}

TEST_F(HttpServerTest, KeepAliveAndClose) {
  start();
  RawClient keeps = client();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(keeps.send(RawClient::get("/health")));
    EXPECT_EQ(keeps.read_response().headers.at("connection"), "keep-alive");
  }
  RawClient closes = client();
  ASSERT_TRUE(closes.send(RawClient::get("/health", "Connection: close\r\n")));
  EXPECT_EQ(closes.read_response().headers.at("connection"), "close");
  EXPECT_EQ(closes.read_to_end(), "");
  EXPECT_TRUE(closes.ended());
}

TEST_F(HttpServerTest, Http10) {
  start({.stop_after = 3});
  RawClient c = client();
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";
  ASSERT_TRUE(c.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
                     "\r\n\r\n" + body));
  const RawResponse r = c.read_response();
  EXPECT_EQ(r.status, 200);
  EXPECT_FALSE(r.headers.contains("transfer-encoding"));
  EXPECT_EQ(text_of_stream(events(r.body)), "abc");
  EXPECT_TRUE(c.ended());
}

TEST_F(HttpServerTest, ChunkedBodiesAndContinue) {
  HttpOptions options;
  options.limits.body_bytes_max = 1000;
  start({.stop_after = 3}, options);
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: x\r\n";
  EXPECT_EQ(json(ask(head + "Transfer-Encoding: "
                            "chunked\r\n\r\n6\r\n{\"prom\r\n7;ext=1\r\npt\":\"a\"\r\n1\r\n}\r\n0\r\n\r\n")
                     .body)["count"],
            2);
  RawClient c = client();
  const std::string body = R"({"prompt":"ab"})";
  ASSERT_TRUE(
      c.send(head + "Expect: 100-continue\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n"));
  EXPECT_EQ(c.read_head().status, 100);
  ASSERT_TRUE(c.send(body));
  EXPECT_EQ(json(c.read_response().body)["count"], 3);

  expect_error(ask(head + "Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n"), 413,
               "expected, too large");
  expect_error(ask(head + "Content-Length: 1001\r\n\r\n" + std::string(1001, ' ')), 413, "too large");
  expect_error(ask(head + "Content-Length: 99999999999999999999\r\n\r\n"), 400, "length beyond 64 bits");
  std::string chunks = head + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 1001; ++i) chunks += "1\r\nx\r\n";
  expect_error(ask(chunks + "0\r\n\r\n"), 413, "too large in chunks");
  expect_error(ask(head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"), 400,
               "chunk size beyond 64 bits");
  expect_error(ask(head + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(100'000, 'x')), 400,
               "endless extension");
  // A large body on its way is let run out, so that the answer arrives.
  RawClient large = client();
  large.send(head + "Content-Length: 3000000\r\n\r\n" + std::string(3'000'000, ' '));
  expect_error(large.read_response(), 413, "large body being sent");
  expect_healthy();
}

TEST_F(HttpServerTest, BrokenRequests) {
  start();
  for (const std::string& bytes :
       {std::string("nonsense\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string("GET /health HTTP/2.0\r\n\r\n"),
        std::string("GET /health HTTP/1.1\r\nbroken header\r\n\r\n"), "GE\0T /health HTTP/1.1\r\n\r\n"s,
        "GET /hea\0lth HTTP/1.1\r\n\r\n"s, "GET /health HTTP/1.1\r\nA: \0\r\n\r\n"s,
        std::string("GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\r\n\r\n", 14),
        std::string("POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        std::string("POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"),
        std::string("POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}"),
        std::string("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
                    "chunked\r\n\r\n0\r\n\r\n"),
        std::string("POST /tokenize HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 2\r\n\r\n{}"),
        std::string("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n")}) {
    expect_error(ask(bytes), 400, bytes);
  }
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: x\r\n", body = "Content-Length: 2\r\n\r\n{}";
  for (const char* coding : {"gzip", "identity", "chunked, gzip", "gzip, chunked"})
    expect_error(ask(head + "Transfer-Encoding: " + coding + "\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), 501, coding);
  expect_error(ask(head + "Content-Encoding: gzip\r\n" + body), 415, "gzip");
  expect_error(ask("BREW /health HTTP/1.1\r\n\r\n"), 405, "BREW");
  expect_error(ask("GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\n\r\n"), 431, "long target");
  expect_error(ask(RawClient::get("/health", "A: " + std::string(20'000, 'x') + "\r\n")), 431, "long header");
  std::string many;
  for (int i = 0; i < 3000; ++i) many += "A" + std::to_string(i) + ": x\r\n";
  expect_error(ask(RawClient::get("/health", many)), 431, "many headers");
  expect_healthy();
}

TEST_F(HttpServerTest, UnusualRequestsThatAreRight) {
  start({.stop_after = 3});
  const std::string body = R"({"prompt":"ab"})", length = std::to_string(body.size());
  EXPECT_EQ(ask("\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
  EXPECT_EQ(ask("GET http://host:8080/health?q HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
  EXPECT_EQ(ask("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Encoding: identity\r\nContent-Length: " +
                length + "\r\n\r\n" + body)
                .status,
            200);
  RawClient slow = client();
  ASSERT_TRUE(slow.send("\r"));
  ASSERT_TRUE(slow.send("\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_EQ(slow.read_response().status, 200);
}

TEST_F(HttpServerTest, BodiesAreBoundedTogether) {
  const auto holds = [this](int64_t bytes) {
    const std::string line = "\nlariat_http_body_bytes " + std::to_string(bytes) + "\n";
    for (const auto until = std::chrono::steady_clock::now() + Ms(10'000);
         std::chrono::steady_clock::now() < until;)
      if (get("/metrics").body.find(line) != std::string::npos) return true;
    return false;
  };
  HttpOptions options;
  options.limits.body_bytes_max = 3 << 20;
  options.limits.bodies_bytes_max = 4 << 20;
  start({.stop_after = 3}, options);
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n";
  {
    RawClient first = client();
    ASSERT_TRUE(first.send(head + std::string(2'900'000, ' ')));
    ASSERT_TRUE(holds(2'900'000)) << "before another may come";
    const RawResponse refused = ask(head + std::string(3'000'000, ' '));
    expect_error(refused, 503, "two large bodies");
    EXPECT_EQ(ask(RawClient::post("/tokenize", R"({"prompt":"ab"})")).status, 200) << "a small one has room";
    ASSERT_TRUE(first.send(std::string(100'000 - 17, ' ') + R"({"prompt":"abcd"})"));
    EXPECT_EQ(json(first.read_response().body)["count"], 5);
  }
  EXPECT_EQ(ask(head + std::string(3'000'000 - 17, ' ') + R"({"prompt":"abcd"})").status, 200);
  RawClient gone = client();
  ASSERT_TRUE(gone.send(head + std::string(2'900'000, ' ')));
  ASSERT_TRUE(holds(2'900'000));
  gone.close();
  EXPECT_TRUE(holds(0)) << "who goes away gives back";
}

TEST_F(HttpServerTest, HostileBodies) {
  start({.stop_after = 1});
  const std::string deep = R"({"messages":)" + std::string(10'000, '[') + std::string(10'000, ']') + "}";
  for (const std::string& body :
       {deep, std::string("\0", 1), std::string("{\"prompt\":\"\x01\"}"), std::string("\xff\xfe"),
        std::string(), std::string(R"({"messages":"x"})")}) {
    expect_error(post("/v1/chat/completions", body), 400, body.substr(0, 40));
    expect_error(post("/v1/completions", body), 400, body.substr(0, 40));
    expect_healthy();
  }
}

TEST_F(HttpServerTest, SlowSendersRunOutOfTime) {
  HttpOptions options;
  options.limits.header_timeout = Ms(100);
  options.limits.body_timeout = Ms(100);
  options.limits.idle_timeout = Ms(150);
  start({}, options);
  RawClient header = client();
  ASSERT_TRUE(header.send("GET /health HTTP/1.1\r\nHost:"));
  expect_error(header.read_response(), 408, "header");
  RawClient body = client();
  ASSERT_TRUE(body.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"));
  expect_error(body.read_response(), 408, "body");
  RawClient idle = client();
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_TRUE(idle.ended());
  // A trickle of single bytes does not push the deadline away.
  RawClient trickle = client();
  std::string answer;
  while (trickle.send("G", Ms(1000)) && answer.empty()) {
    answer = trickle.read_until("\r\n", Ms(10));
    if (trickle.ended()) break;
  }
  EXPECT_THAT(answer, HasSubstr("4"));
}

TEST_F(HttpServerTest, ConnectionsOverTheLimitAreTurnedAway) {
  HttpOptions options;
  options.limits.connections_max = 2;
  start({}, options);
  RawClient one = client(), two = client();
  for (RawClient* c : {&one, &two}) {
    ASSERT_TRUE(c->send(RawClient::get("/health")));
    EXPECT_EQ(c->read_response().status, 200);
  }
  RawClient three = client();
  expect_error(three.read_response(), 503, "third");
  one.close();
  // The place is free as soon as the server has seen the close.
  const auto end = std::chrono::steady_clock::now() + Ms(5000);
  int status = 503;
  while (status == 503 && std::chrono::steady_clock::now() < end) {
    RawClient again = client();
    status = again.send(RawClient::get("/health")) ? again.read_response().status : 503;
    if (status == 0) status = 503;
  }
  EXPECT_EQ(status, 200);
}

TEST(RequestParser, SplitsAnywhere) {
  const std::string bytes =
      "POST /a%20b?q=%zz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    RequestParser parser(4096, 100);
    std::string buffer = bytes.substr(0, cut);
    buffer.erase(0, parser.feed(buffer));
    if (!parser.done()) {
      buffer += bytes.substr(cut);
      buffer.erase(0, parser.feed(buffer));
    } else {
      buffer += bytes.substr(cut);
    }
    ASSERT_TRUE(parser.done()) << cut << parser.error().message;
    EXPECT_EQ(parser.head().path, "/a b");
    EXPECT_EQ(parser.head().authorization, "Bearer k");
    EXPECT_EQ(parser.take_body(), "abc");
    EXPECT_EQ(buffer, "GET / HTTP/1.1\r\n\r\n");
  }
}

// The end of a chunked body, one byte more each time.
TEST(RequestParser, ByteByByte) {
  const std::string head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body : {"3\r\nabc\r\n0\r\n\r\n", "3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n", "0\r\n\r\n",
                           "1;ext=y\r\nx\r\n000\r\n\r\n"}) {
    RequestParser parser(4096, 100);
    std::string buffer;
    for (const char byte : head + body) {
      ASSERT_FALSE(parser.done()) << body;
      buffer += byte;
      buffer.erase(0, parser.feed(buffer));
    }
    EXPECT_TRUE(parser.done()) << body << parser.error().message;
  }
  RequestParser broken(4096, 100);
  std::string buffer;
  for (const char byte : head + "0\r\n{broken\r\n\r\n") {
    buffer += byte;
    buffer.erase(0, broken.feed(buffer));
  }
  EXPECT_TRUE(broken.failed());
}

TEST(RequestParser, DecodesPaths) {
  EXPECT_EQ(decode_path("/v1/models/org%2Fname?x"), "/v1/models/org/name");
  EXPECT_EQ(decode_path("/%e4%B8%ad"), "/\xe4\xb8\xad");
  EXPECT_FALSE(decode_path("/%4").has_value());
  EXPECT_FALSE(decode_path("/%4g").has_value());
}

}  // namespace
}  // namespace lariat
