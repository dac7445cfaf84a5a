// Answers that the engine makes: whole or streamed, with an eye on whether the client is still there.
#include <fmt/core.h>
#include <malloc.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "http/connection.h"

// GCC 12 inlines one half of Asio's frame allocation and takes the other for the global operator delete.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace lariat {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

template <typename Work>
asio::awaitable<void> run_once(Work& work) {
  work();
  co_return;
}

// Runs `work` on the pool and resumes the caller on its own thread; the caller's frame keeps `work` alive.
template <typename Work>
asio::awaitable<void> offload(asio::thread_pool& pool, Work& work) {
  co_await asio::co_spawn(pool.get_executor(), run_once(work), asio::use_awaitable);
}

// A member that points to something only while it lives.
struct Current {
  Exchange*& slot;
  ~Current() { slot = nullptr; }
};

// Parsed, a large body is many small blocks of memory, which the allocator would keep.
constexpr size_t kLargeBody = 1 << 20;

void give_back_after(size_t body_bytes) {
  if (body_bytes > kLargeBody) malloc_trim(0);
}

std::string sse(std::string_view payload) {
  return fmt::format("data: {}\n\n", payload);
}

constexpr std::string_view kComment = ": keep-alive\n\n";
constexpr std::string_view kDone = "data: [DONE]\n\n";

}  // namespace

asio::awaitable<void> Connection::tokenize(std::string body) {
  const bool there = route_.endpoint == Endpoint::kTokenize;
  Reply reply;
  auto work = [&] {
    auto answer = there ? answer_tokenize(body, server_.model) : answer_detokenize(body, server_.model);
    if (answer.ok()) {
      reply.body = std::move(answer).value();
    } else {
      reply = error_reply(answer.error());
    }
    give_back_after(body.size());
  };
  co_await offload(server_.pool, work);
  co_await send(std::move(reply));
}

asio::awaitable<void> Connection::generate(std::string body) {
  const bool chat = route_.endpoint == Endpoint::kChat;
  std::optional<ApiResult<ParsedRequest>> read;
  auto work = [&] {
    read = chat ? parse_chat(body, server_.model) : parse_completion(body, server_.model);
    give_back_after(body.size());
  };
  co_await offload(server_.pool, work);
  std::string().swap(body);
  body_.hold(0);
  ApiResult<ParsedRequest>& parsed = *read;
  if (!parsed.ok() || aborted_) {
    Reply refusal = error_reply(parsed.ok() ? draining_error() : parsed.error());
    co_await send(std::move(refusal));
    co_return;
  }
  const bool stream = parsed->stream, usage = parsed->include_usage;
  Exchange exchange({server_.engine, server_.exchanges, server_.io, server_.metrics, server_.model.codec,
                     server_.options.limits.pending_bytes_max},
                    std::move(parsed).value());
  Status taken = exchange.submit();
  if (!taken.ok()) {
    Reply refusal = error_reply(to_api_error(taken.error()));
    co_await send(std::move(refusal));
    co_return;
  }
  exchange_ = &exchange;
  const Current current{exchange_};
  watch(exchange.feed());
  if (stream) {
    co_await answer_stream(exchange, usage);
  } else {
    co_await answer_whole(exchange);
  }
  if (gone_) {
    close_ = true;
    server_.metrics.disconnects.fetch_add(1);
  }
  co_await stop_watching();
}

Feed::Clock::time_point Connection::request_deadline(const Exchange& exchange) const {
  const Ms timeout = server_.options.limits.request_timeout;
  if (timeout.count() <= 0) return Feed::Clock::time_point::max();
  return exchange.started() + timeout;
}

bool Connection::out_of_time(Exchange& exchange) {
  if (Feed::Clock::now() < request_deadline(exchange)) return false;
  exchange.fail(to_api_error(make_error(
      Errc::kDeadlineExceeded,
      fmt::format("the answer took longer than {} ms", server_.options.limits.request_timeout.count()))));
  return true;
}

asio::awaitable<void> Connection::answer_whole(Exchange& exchange) {
  bool probed = false;
  while (!exchange.finished() && !exchange.error()) {
    co_await exchange.feed().wait(request_deadline(exchange));
    if (gone_) co_return;
    exchange.drain(nullptr);
    if (!exchange.finished()) out_of_time(exchange);
    if (half_closed_ && !probed) {
      // A client that only ended its sending reads this and waits on; one that is gone resets the connection.
      probed = true;
      if (head_.version < 11) gone_ = true;
      if (gone_) co_return;
      std::string interim = "HTTP/1.1 102 Processing\r\n\r\n";
      const bool written = co_await write(std::move(interim));
      if (!written) co_return;
    }
  }
  Reply reply;
  if (exchange.error()) {
    reply = error_reply(*exchange.error());
  } else {
    reply.body = exchange.answer().body();
  }
  reply.headers.emplace_back("X-Request-Id", exchange.id());
  co_await send(std::move(reply));
}

std::string Connection::stream_head(const Exchange& exchange) {
  status_ = 200;
  if (head_.version < 11 || server_.draining) close_ = true;
  Reply reply;
  reply.content_type = "text/event-stream";
  reply.headers = {
      {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}, {"X-Request-Id", exchange.id()}};
  if (head_.version >= 11) return response_head(reply, -1, !close_);
  // HTTP/1.0 has no chunks: the end of the connection is the end of the stream.
  std::string head = response_head(reply, 0, false);
  constexpr std::string_view kLength = "Content-Length: 0\r\n";
  return head.erase(head.find(kLength), kLength.size());
}

std::string Connection::frame(std::string_view data) const {
  return head_.version < 11 ? std::string(data) : fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

// The head waits for the first event (or keep-alive), so that a request that fails before has a status of its
// own.
asio::awaitable<void> Connection::answer_stream(Exchange& exchange, bool usage) {
  const Ms interval = server_.options.limits.keepalive_interval;
  bool head_sent = false, probed = false;
  std::vector<std::string> payloads;
  Feed::Clock::time_point spoken = Feed::Clock::now();
  while (!exchange.finished() && !exchange.error()) {
    co_await exchange.feed().wait(std::min(spoken + interval, request_deadline(exchange)));
    if (gone_) co_return;
    payloads.clear();
    exchange.drain(&payloads);
    if (!exchange.finished() && !exchange.error()) out_of_time(exchange);
    if (exchange.error() && !head_sent) break;
    std::string data;
    for (const std::string& p : payloads) data += sse(p);
    const bool silent = Feed::Clock::now() >= spoken + interval;
    if (data.empty() && (silent || (half_closed_ && !probed))) data = kComment;
    if (half_closed_) probed = true;
    if (data.empty()) continue;
    std::string out;
    if (!head_sent) out = stream_head(exchange);
    head_sent = true;
    out += frame(data);
    const bool written = co_await write(std::move(out));
    if (!written) co_return;
    spoken = Feed::Clock::now();
  }
  if (!head_sent && exchange.error()) {
    Reply failure = error_reply(*exchange.error());
    co_await send(std::move(failure));
  } else {
    // No conditional temporaries in a co_await: GCC 12 destroys them twice.
    std::string out;
    if (!head_sent) out = stream_head(exchange);
    co_await end_stream(exchange, usage, std::move(out));
  }
}

// A failed stream ends in an error event, without [DONE] or a finish, and takes the connection with it.
asio::awaitable<bool> Connection::end_stream(Exchange& exchange, bool usage, std::string out) {
  std::string data;
  if (exchange.error()) {
    data = sse(error_body(*exchange.error()));
    status_ = exchange.error()->status;
    close_ = true;
  } else {
    if (usage) data = sse(exchange.answer().usage_payload());
    data += kDone;
  }
  out += frame(data);
  if (head_.version >= 11) out += "0\r\n\r\n";
  co_return co_await write(std::move(out));
}

void Connection::watch(Feed& feed) {
  watched_ = feed.shared_from_this();
  half_closed_ = false;
  watch_read();
}

// Reading on is how a closed connection shows. What a pipelining client has sent already is kept, up to a
// bound; beyond it only a reset is noticed.
void Connection::watch_read() {
  watching_ = true;
  if (in_.size() >= server_.options.limits.header_bytes_max) return watch_error();
  socket_.async_read_some(asio::buffer(watch_buffer_), [self = shared_from_this()](error_code ec, size_t n) {
    self->watching_ = false;
    if (ec == asio::error::operation_aborted) return;
    if (!ec) {
      self->in_.append(self->watch_buffer_.data(), n);
      return self->watch_read();
    }
    if (ec == asio::error::eof) {
      self->half_closed_ = true;
      self->watch_error();
    } else {
      self->gone_ = true;
    }
    if (self->watched_) self->watched_->poke();
  });
}

void Connection::watch_error() {
  watching_ = true;
  socket_.async_wait(asio::socket_base::wait_error, [self = shared_from_this()](error_code ec) {
    self->watching_ = false;
    if (ec == asio::error::operation_aborted) return;
    self->gone_ = true;
    if (self->watched_) self->watched_->poke();
  });
}

asio::awaitable<void> Connection::stop_watching() {
  watched_ = nullptr;
  error_code ignored;
  socket_.cancel(ignored);
  while (watching_) co_await asio::post(server_.io, asio::use_awaitable);
}

}  // namespace lariat
