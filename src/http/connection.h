// One client's connection: reads requests, answers them in order. A coroutine on the server's IO thread.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <string>

#include "http/exchange.h"
#include "http/options.h"
#include "http/request_parser.h"
#include "http/routes.h"

namespace lariat {

// What the connections of a server share. IO thread only, but for the pool and the metrics.
struct ServerState {
  ServerState(HttpOptions o, Engine& e, ModelContext m)
      : options(std::move(o)),
        engine(e),
        model(std::move(m)),
        pool(static_cast<size_t>(std::max(1, options.parse_threads))) {}

  const HttpOptions options;
  Engine& engine;
  const ModelContext model;
  boost::asio::io_context io{1};
  boost::asio::thread_pool pool;  // reads and tokenizes bodies
  HttpMetrics metrics;
  ExchangeTable exchanges;
  bool draining = false;
};

// A connection's part of the bodies that all hold. IO thread only.
class BodyHold {
 public:
  explicit BodyHold(ServerState& server) : server_(server) {}
  ~BodyHold() { hold(0); }
  BodyHold(const BodyHold&) = delete;
  BodyHold& operator=(const BodyHold&) = delete;
  // False when that is too much for all; what is held stays as it is then.
  bool hold(size_t bytes) {
    const auto others = static_cast<size_t>(server_.metrics.body_bytes.load()) - bytes_;
    if (bytes > bytes_ && others + bytes > server_.options.limits.bodies_bytes_max) return false;
    server_.metrics.body_bytes = static_cast<int64_t>(others + bytes);
    bytes_ = bytes;
    return true;
  }

 private:
  ServerState& server_;
  size_t bytes_ = 0;
};

// What a client hears while the server drains: 503.
ApiError draining_error();

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerState& server, boost::asio::ip::tcp::socket socket);

  // Until the connection is closed. Never throws but for lack of memory.
  boost::asio::awaitable<void> run();

  // The server drains: an idle connection closes, a busy one after its answer.
  void drain();
  // The drain is over: what runs ends with an error.
  void abort();
  void close();

 private:
  using Ms = std::chrono::milliseconds;
  enum class Read { kRequest, kAnswered, kClosed };

  boost::asio::awaitable<Read> read_request(RequestParser& parser);
  boost::asio::awaitable<size_t> read_some(std::string& into, size_t bytes_max);
  boost::asio::awaitable<void> read_failed(const RequestParser& parser, bool started);
  std::optional<Reply> preflight(const RequestHead& head);
  boost::asio::awaitable<void> serve(RequestParser& parser);
  Reply plain_reply();
  Reply cancel_reply(const std::string& id);

  boost::asio::awaitable<bool> write(std::string bytes);
  boost::asio::awaitable<void> send(Reply reply);
  boost::asio::awaitable<void> linger();

  // connection_generate.cc: answers that the engine makes.
  boost::asio::awaitable<void> tokenize(std::string body);
  boost::asio::awaitable<void> generate(std::string body);
  boost::asio::awaitable<void> answer_whole(Exchange& exchange);
  boost::asio::awaitable<void> answer_stream(Exchange& exchange, bool usage);
  boost::asio::awaitable<bool> end_stream(Exchange& exchange, bool usage, std::string out);
  Feed::Clock::time_point request_deadline(const Exchange& exchange) const;
  bool out_of_time(Exchange& exchange);
  std::string stream_head(const Exchange& exchange);
  std::string frame(std::string_view data) const;

  // Whether the client is still there while it has nothing to say.
  void watch(Feed& feed);
  void watch_read();
  void watch_error();
  boost::asio::awaitable<void> stop_watching();

  // One deadline at a time, for what the coroutine waits for; when it passes, every wait of the socket ends.
  void arm(Ms timeout);
  void disarm();

  ServerState& server_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_;
  uint64_t deadline_id_ = 0;
  bool timed_out_ = false;

  std::string in_;  // bytes read and not yet taken
  BodyHold body_;
  RequestHead head_;
  Route route_;
  bool close_ = false;  // after the answer
  bool idle_ = true;    // between requests
  int status_ = 0;      // of the answer, for the metrics

  std::shared_ptr<Feed> watched_;
  bool watching_ = false;     // a wait of the socket is under way
  bool half_closed_ = false;  // the client will send no more
  bool gone_ = false;
  bool aborted_ = false;  // the server does not wait any longer
  std::array<char, 4096> watch_buffer_;
  Exchange* exchange_ = nullptr;
};

}  // namespace lariat
