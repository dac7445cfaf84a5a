// C30: clients that go away, in every way a socket can, free what they held; one that only stops sending does
// not.
#include "http/http_server_fixture_test_util.h"

namespace lariat {
namespace {

constexpr std::chrono::milliseconds kSecond{1000};

class DisconnectTest : public HttpServerTest {
 protected:
  static constexpr std::chrono::milliseconds kStep{50};
  // The value of a gauge or counter of /metrics, empty if it is not there.
  std::string metric(const std::string& name) {
    const std::string text = get("/metrics").body, mark = "\n" + name + " ";
    const size_t at = text.find(mark);
    if (at == std::string::npos) return "";
    const size_t begin = at + mark.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  // The gauges that the report asks for are back at their start, and a new request is served.
  void expect_free() {
    EXPECT_TRUE(engine_.wait_rows(0, kSecond));
    EXPECT_EQ(metric("lariat_requests_running"), "0");
    EXPECT_EQ(metric("lariat_kv_pages_used"), "0");
    EXPECT_EQ(ask(chat(R"("max_tokens":1)")).status, 200);
  }
};

TEST_F(DisconnectTest, CloseAfterTheFirstChunk) {
  start({.step = kStep});
  RawClient c = client();
  ASSERT_TRUE(c.send(chat(R"("stream":true)")));
  EXPECT_EQ(c.read_head().status, 200);
  EXPECT_FALSE(c.read_chunk().empty());
  c.close();
  expect_free();
}

TEST_F(DisconnectTest, Reset) {
  start({.step = kStep});
  for (const char* fields : {R"("stream":true)", R"("stream":false)"}) {
    const int before = engine_.submitted();
    RawClient c = client();
    ASSERT_TRUE(c.send(chat(fields)));
    ASSERT_TRUE(engine_.wait_submitted(before + 1, Ms(5000)));
    c.reset();
    expect_free();
  }
}

TEST_F(DisconnectTest, CloseDuringALongPrefill) {
  start({.step = kStep, .prefill_steps = 1000});
  for (const char* fields : {R"("stream":true)", R"("stream":false)"}) {
    const int before = engine_.submitted();
    RawClient c = client();
    ASSERT_TRUE(c.send(chat(fields)));
    ASSERT_TRUE(engine_.wait_submitted(before + 1, Ms(5000)));
    c.close();
    EXPECT_TRUE(engine_.wait_rows(0, kSecond)) << fields;
  }
  EXPECT_EQ(metric("lariat_http_disconnects_total"), "2");
}

TEST_F(DisconnectTest, CloseAtOnceWithoutStream) {
  start({.step = kStep});
  RawClient c = client();
  ASSERT_TRUE(c.send(chat("")));
  c.close();
  ASSERT_TRUE(engine_.wait_submitted(1, Ms(5000)));
  expect_free();
}

TEST_F(DisconnectTest, ShutdownOfBothSidesWhileOpen) {
  start({.step = kStep, .prefill_steps = 1000});
  RawClient c = client();
  ASSERT_TRUE(c.send(chat("")));
  ASSERT_TRUE(engine_.wait_submitted(1, Ms(5000)));
  c.shutdown_both();
  EXPECT_TRUE(engine_.wait_rows(0, kSecond));
}

TEST_F(DisconnectTest, CloseWithPipelinedRequestsBehind) {
  start({.step = kStep, .prefill_steps = 1000});
  RawClient c = client();
  ASSERT_TRUE(c.send(chat("") + chat("") + RawClient::get("/health")));
  ASSERT_TRUE(engine_.wait_submitted(1, Ms(5000)));
  c.close();
  EXPECT_TRUE(engine_.wait_rows(0, kSecond));
  EXPECT_EQ(engine_.submitted(), 1);
}

// (e) A client that does not read ends by the write timeout, and holds nobody else up.
TEST_F(DisconnectTest, StopsReading) {
  HttpOptions options;
  options.limits.write_timeout = Ms(300);
  options.limits.send_buffer_bytes = 4096;
  start({.step = Ms(1), .text_repeat = 1000}, options);
  RawClient stuck = client(/*receive_buffer=*/4096);
  ASSERT_TRUE(stuck.send(chat(R"("stream":true)")));
  ASSERT_TRUE(engine_.wait_submitted(1, Ms(5000)));
  EXPECT_EQ(events(ask(chat(R"("stream":true,"max_tokens":20)")).body).back(), "[DONE]");
  EXPECT_TRUE(engine_.wait_rows(0, Ms(5000)));
  EXPECT_EQ(metric("lariat_http_slow_clients_total"), "1");
}

TEST_F(DisconnectTest, PendingBytesAreBounded) {
  HttpOptions options;
  options.limits.pending_bytes_max = 64 << 10;
  options.limits.send_buffer_bytes = 4096;
  options.limits.write_timeout = Ms(20'000);
  start({.text_repeat = 10'000}, options);
  RawClient stuck = client(4096);
  ASSERT_TRUE(stuck.send(chat(R"("stream":true,"max_tokens":1000)")));
  ASSERT_TRUE(engine_.wait_submitted(1, Ms(5000)));
  ASSERT_TRUE(engine_.wait_rows(0, Ms(5000)));
  // It reads at last: the stream ends in an error, not in a gap. (Where the engine outran even the head, the
  // error is the whole answer.)
  const RawResponse r = stuck.read_response();
  const nlohmann::json last = r.status == 200 ? events(r.body).back() : json(r.body);
  EXPECT_EQ(last["error"]["code"], "client_too_slow");
}

// (f) The client ends its sending side and reads on.
TEST_F(DisconnectTest, HalfCloseGetsTheWholeAnswer) {
  start({.step = Ms(20), .prefill_steps = 5, .stop_after = 5});
  RawClient streamed = client(), whole = client();
  ASSERT_TRUE(streamed.send(chat(R"("stream":true)")));
  ASSERT_TRUE(whole.send(chat("")));
  streamed.shutdown_write();
  whole.shutdown_write();
  const RawResponse s = streamed.read_response();
  EXPECT_EQ(s.status, 200);
  EXPECT_EQ(text_of_stream(events(s.body)), "abcde");
  RawResponse w = whole.read_head();
  EXPECT_EQ(w.status, 102);
  w = whole.read_response();
  EXPECT_EQ(w.status, 200);
  EXPECT_EQ(json(w.body)["choices"][0]["message"]["content"], "abcde");
  EXPECT_TRUE(engine_.wait_rows(0, kSecond));
}

// (g) Close exactly at the end, many times: nothing is left behind.
TEST_F(DisconnectTest, CloseAtTheLastToken) {
  start({.stop_after = 3});
  for (int i = 0; i < 200; ++i) {
    RawClient c = client();
    ASSERT_TRUE(c.send(chat(i % 2 ? R"("stream":true)" : "")));
    if (i % 4 < 2) c.read_until(i % 2 ? "\"finish_reason\":\"stop\"" : "HTTP/1.1 200");
    i % 3 ? c.close() : c.reset();
  }
  // All connections are gone but the one that asks.
  const auto end = std::chrono::steady_clock::now() + Ms(5000);
  std::string open;
  do {
    open = metric("lariat_http_connections");
  } while (open != "1" && std::chrono::steady_clock::now() < end);
  EXPECT_EQ(open, "1");
  EXPECT_GT(engine_.submitted(), 100);
  expect_free();
}

// A request waiting for a place starts when the one that held it goes away.
TEST_F(DisconnectTest, AWaitingRequestTakesThePlace) {
  start({.step = Ms(10), .rows_max = 1});
  RawClient first = client(), second = client();
  ASSERT_TRUE(first.send(chat(R"("stream":true)")));
  EXPECT_EQ(first.read_head().status, 200);
  ASSERT_TRUE(second.send(chat(R"("max_tokens":3)")));
  ASSERT_TRUE(engine_.wait_submitted(2, Ms(5000)));
  EXPECT_EQ(metric("lariat_requests_waiting"), "1");
  first.close();
  EXPECT_EQ(second.read_response(Ms(5000)).status, 200);
}

}  // namespace
}  // namespace lariat
