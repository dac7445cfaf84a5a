#include "http/connection.h"

#include <fmt/core.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "base/log.h"

namespace lariat {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 64 << 10;
// After an answer that ends the connection, unread input is thrown away for a while: closing on it would
// reset the connection, and the client might never see the answer.
constexpr std::chrono::milliseconds kLinger{2'000};
constexpr size_t kLingerBytesMax = 256 << 20;

bool takes_body(Endpoint e) {
  return e == Endpoint::kChat || e == Endpoint::kCompletion;
}

}  // namespace

ApiError draining_error() {
  return to_api_error(make_error(Errc::kUnavailable, "the server is shutting down"));
}

Connection::Connection(ServerState& server, asio::ip::tcp::socket socket)
    : server_(server), socket_(std::move(socket)), deadline_(server.io), body_(server) {}

void Connection::arm(Ms timeout) {
  timed_out_ = false;
  deadline_.expires_after(timeout);
  deadline_.async_wait([self = shared_from_this(), id = ++deadline_id_](error_code ec) {
    if (ec || id != self->deadline_id_) return;
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::disarm() {
  ++deadline_id_;
  deadline_.cancel();
}

asio::awaitable<void> Connection::run() {
  while (!close_) {
    RequestParser parser(server_.options.limits.header_bytes_max, server_.options.limits.body_bytes_max);
    status_ = 0;
    route_ = Route();
    const Feed::Clock::time_point start = Feed::Clock::now();
    const Read read = co_await read_request(parser);
    if (read == Read::kClosed) break;
    if (read == Read::kRequest) co_await serve(parser);
    body_.hold(0);
    if (status_ != 0) server_.metrics.count_request(endpoint_name(route_.endpoint), status_);
    if (takes_body(route_.endpoint) && status_ == 200) {
      server_.metrics.request_seconds.observe(
          std::chrono::duration<double>(Feed::Clock::now() - start).count());
    }
  }
  // Only where an answer is on its way: an idle connection has nothing to lose.
  if (!gone_ && !aborted_ && status_ != 0) co_await linger();
  close();
}

asio::awaitable<size_t> Connection::read_some(std::string& into, size_t bytes_max) {
  const size_t before = into.size();
  into.resize(before + bytes_max);
  const auto [ec, n] =
      co_await socket_.async_read_some(asio::buffer(into.data() + before, bytes_max), kTuple);
  into.resize(before + (ec ? 0 : n));
  if (ec && !timed_out_ && ec != asio::error::operation_aborted) gone_ = ec != asio::error::eof;
  co_return into.size() - before;
}

asio::awaitable<void> Connection::read_failed(const RequestParser& parser, bool started) {
  close_ = true;
  if (!timed_out_ || !started) co_return;
  ApiError e;
  e.status = 408;
  e.type = "invalid_request_error";
  e.code = "request_timeout";
  e.message = parser.header_done() ? "the body did not arrive in time" : "the header did not arrive in time";
  Reply reply = error_reply(e);
  co_await send(std::move(reply));
}

asio::awaitable<Connection::Read> Connection::read_request(RequestParser& parser) {
  const HttpLimits& limits = server_.options.limits;
  bool started = false, judged = false;
  idle_ = true;
  arm(limits.idle_timeout);
  for (;;) {
    if (!in_.empty()) {
      if (!started) arm(limits.header_timeout);
      started = true;
      idle_ = false;
      in_.erase(0, parser.feed(in_));
    }
    if (parser.failed()) {
      close_ = true;
      Reply refusal = error_reply(parser.error());
      co_await send(std::move(refusal));
      co_return Read::kAnswered;
    }
    if (parser.header_done() && !judged) {
      judged = true;
      head_ = parser.head();
      if (!head_.keep_alive) close_ = true;
      if (std::optional<Reply> refusal = preflight(head_)) {
        if (!parser.done()) close_ = true;
        co_await send(std::move(*refusal));
        co_return Read::kAnswered;
      }
      if (head_.expects_continue && !parser.done()) {
        std::string interim = "HTTP/1.1 100 Continue\r\n\r\n";
        const bool written = co_await write(std::move(interim));
        if (!written) co_return Read::kClosed;
      }
      arm(limits.body_timeout);
    }
    if (!body_.hold(parser.body_bytes())) {
      close_ = true;
      Reply refusal = error_reply(to_api_error(
          make_error(Errc::kUnavailable, fmt::format("the server is reading {} bytes of requests already",
                                                     server_.metrics.body_bytes.load()))));
      co_await send(std::move(refusal));
      co_return Read::kAnswered;
    }
    if (parser.done()) break;
    if (server_.draining && !started) co_return Read::kClosed;
    const size_t got = co_await read_some(in_, kReadBytes);
    if (got == 0) {
      co_await read_failed(parser, started);
      co_return status_ == 0 ? Read::kClosed : Read::kAnswered;
    }
  }
  disarm();
  co_return Read::kRequest;
}

// What can be refused before a body is read: unknown paths, wrong methods, strangers.
std::optional<Reply> Connection::preflight(const RequestHead& head) {
  route_ = find_route(head.method, head.path);
  if (route_.endpoint != Endpoint::kHealth && !authorized(server_.options.api_keys, head.authorization)) {
    return error_reply(unauthorized_error());
  }
  if (route_.endpoint == Endpoint::kNone || !route_.method_allowed) {
    return no_route_reply(route_, head.method, head.path);
  }
  if (server_.draining && takes_body(route_.endpoint)) return error_reply(draining_error());
  return std::nullopt;
}

Reply Connection::cancel_reply(const std::string& id) {
  const auto it = server_.exchanges.find(id);
  if (it == server_.exchanges.end()) {
    return error_reply(to_api_error(make_error(Errc::kNotFound, "no request of this id is running", "id")));
  }
  it->second->fail(to_api_error(make_error(Errc::kCancelled, "the request was cancelled")));
  Reply reply;
  reply.body = R"({"cancelled":true})";
  return reply;
}

Reply Connection::plain_reply() {
  switch (route_.endpoint) {
    case Endpoint::kModels:
      return models_reply(server_.model);
    case Endpoint::kModel:
      return model_reply(server_.model, route_.argument);
    case Endpoint::kHealth:
      return health_reply(server_.engine.state(), server_.draining);
    case Endpoint::kState:
      return state_reply(server_.engine.state());
    case Endpoint::kCancel:
      return cancel_reply(route_.argument);
    default:
      break;
  }
  LARIAT_CHECK(route_.endpoint == Endpoint::kMetrics);
  Reply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = server_.metrics.render(server_.engine.state());
  return reply;
}

asio::awaitable<void> Connection::serve(RequestParser& parser) {
  std::string body;
  Reply reply;
  switch (route_.endpoint) {
    case Endpoint::kChat:
    case Endpoint::kCompletion:
      body = parser.take_body();
      co_await generate(std::move(body));
      break;
    case Endpoint::kTokenize:
    case Endpoint::kDetokenize:
      body = parser.take_body();
      co_await tokenize(std::move(body));
      break;
    default:
      reply = plain_reply();
      co_await send(std::move(reply));
  }
}

asio::awaitable<bool> Connection::write(std::string bytes) {
  arm(server_.options.limits.write_timeout);
  const auto [ec, n] = co_await asio::async_write(socket_, asio::buffer(bytes), kTuple);
  disarm();
  if (!ec) co_return true;
  if (timed_out_) server_.metrics.slow_clients.fetch_add(1);
  close_ = gone_ = true;
  co_return false;
}

asio::awaitable<void> Connection::send(Reply reply) {
  status_ = reply.status;
  if (server_.draining) close_ = true;
  std::string bytes = response_head(reply, static_cast<int64_t>(reply.body.size()), !close_);
  if (head_.method != "HEAD") bytes += reply.body;
  co_await write(std::move(bytes));
}

asio::awaitable<void> Connection::linger() {
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  arm(kLinger);
  std::string sink;
  for (size_t total = 0; total < kLingerBytesMax && !timed_out_;) {
    sink.clear();
    const size_t n = co_await read_some(sink, kReadBytes);
    if (n == 0) break;
    total += n;
  }
  disarm();
}

void Connection::drain() {
  error_code ignored;
  if (idle_) socket_.cancel(ignored);
}

void Connection::abort() {
  close_ = aborted_ = true;
  if (exchange_ != nullptr) return exchange_->fail(draining_error());
  error_code ignored;
  socket_.cancel(ignored);
}

void Connection::close() {
  error_code ignored;
  socket_.close(ignored);
  disarm();
}

}  // namespace lariat
