#include "http/http_server.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "http/connection.h"

namespace lariat {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

asio::ip::address address_of(const std::string& host, error_code& ec) {
  return asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, ec);
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpOptions options, Engine& engine, ModelContext model)
      : state_(std::move(options), engine, std::move(model)), acceptor_(state_.io), pause_(state_.io) {}

  Status listen();
  void serve();
  uint16_t port() const { return port_; }
  void stop(std::chrono::milliseconds drain);

 private:
  asio::awaitable<void> accept_loop();
  void admit(tcp::socket socket);
  void turn_away(tcp::socket socket);
  void on_closed(const std::shared_ptr<Connection>& connection);
  template <typename Each>
  void for_each_connection(Each each);
  bool wait_closed(std::chrono::milliseconds timeout);

  ServerState state_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  uint16_t port_ = 0;
  std::set<std::shared_ptr<Connection>> connections_;  // IO thread only
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable closed_;
  size_t open_ = 0;  // connections_.size(), and 1 for the accept loop
  bool stopped_ = false;
};

Status HttpServer::Impl::listen() {
  const HttpOptions& o = state_.options;
  error_code ec;
  const asio::ip::address address = address_of(o.host, ec);
  if (ec) {
    return make_error(Errc::kInvalidArgument, fmt::format("\"{}\" is not an IP address", o.host), "host");
  }
  const tcp::endpoint endpoint(address, o.port);
  acceptor_.open(endpoint.protocol(), ec);
  if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor_.bind(endpoint, ec);
  if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) {
    return make_error(Errc::kUnavailable,
                      fmt::format("cannot listen on {} port {}: {}", o.host, o.port, ec.message()), "port");
  }
  port_ = acceptor_.local_endpoint(ec).port();
  return Ok{};
}

void HttpServer::Impl::serve() {
  open_ = 1;
  asio::co_spawn(state_.io, accept_loop(), [this](const std::exception_ptr&) { on_closed(nullptr); });
  thread_ = std::thread([this] {
    const auto work = asio::make_work_guard(state_.io);
    state_.io.run();
  });
}

asio::awaitable<void> HttpServer::Impl::accept_loop() {
  while (acceptor_.is_open()) {
    auto [ec, socket] = co_await acceptor_.async_accept(asio::as_tuple(asio::use_awaitable));
    if (!acceptor_.is_open()) break;
    if (ec) {
      // Out of descriptors, most likely: some connection will end.
      log_warn("accept: {}", ec.message());
      pause_.expires_after(std::chrono::milliseconds(100));
      co_await pause_.async_wait(asio::as_tuple(asio::use_awaitable));
      continue;
    }
    if (connections_.size() >= static_cast<size_t>(state_.options.limits.connections_max)) {
      turn_away(std::move(socket));
    } else {
      admit(std::move(socket));
    }
  }
}

void HttpServer::Impl::turn_away(tcp::socket socket) {
  const Reply reply = error_reply(to_api_error(make_error(Errc::kUnavailable, "too many connections")));
  const std::string bytes = response_head(reply, static_cast<int64_t>(reply.body.size()), false) + reply.body;
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(bytes), ignored);
}

void HttpServer::Impl::admit(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const int send_buffer = state_.options.limits.send_buffer_bytes;
  if (send_buffer > 0) socket.set_option(asio::socket_base::send_buffer_size(send_buffer), ignored);
  auto connection = std::make_shared<Connection>(state_, std::move(socket));
  connections_.insert(connection);
  state_.metrics.connections.fetch_add(1);
  {
    const std::lock_guard lock(mutex_);
    ++open_;
  }
  asio::co_spawn(state_.io, connection->run(), [this, connection](const std::exception_ptr& fault) {
    // Only running out of memory gets here; this client's connection ends, the others go on.
    if (fault) log_error("a connection ended by an exception");
    connection->close();
    on_closed(connection);
  });
}

void HttpServer::Impl::on_closed(const std::shared_ptr<Connection>& connection) {
  if (connection) {
    connections_.erase(connection);
    state_.metrics.connections.fetch_sub(1);
  }
  const std::lock_guard lock(mutex_);
  --open_;
  closed_.notify_all();
}

template <typename Each>
void HttpServer::Impl::for_each_connection(Each each) {
  asio::post(state_.io, [this, each] {
    const auto copy = connections_;
    for (const auto& c : copy) each(*c);
  });
}

bool HttpServer::Impl::wait_closed(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return closed_.wait_for(lock, timeout, [this] { return open_ == 0; });
}

void HttpServer::Impl::stop(std::chrono::milliseconds drain) {
  if (std::exchange(stopped_, true)) return;
  asio::post(state_.io, [this] {
    state_.draining = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
  });
  for_each_connection([](Connection& c) { c.drain(); });
  if (!wait_closed(drain)) {
    for_each_connection([](Connection& c) { c.abort(); });
    // Time for the error events to leave; then whatever a client does, its socket closes.
    constexpr std::chrono::milliseconds kFarewell{1'000};
    for (bool closed = wait_closed(kFarewell); !closed; closed = wait_closed(kFarewell)) {
      for_each_connection([](Connection& c) { c.close(); });
    }
  }
  state_.pool.join();
  state_.io.stop();
  thread_.join();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  stop(std::chrono::milliseconds(0));
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, Engine& engine,
                                                      ModelContext model) {
  auto impl = std::make_unique<Impl>(std::move(options), engine, std::move(model));
  LARIAT_RETURN_IF_ERROR(impl->listen());
  impl->serve();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const {
  return impl_->port();
}

void HttpServer::stop(std::chrono::milliseconds drain) {
  impl_->stop(drain);
}

bool is_listen_address(const std::string& host) {
  error_code ec;
  (void)address_of(host, ec);
  return !ec;
}

Result<std::vector<std::string>> read_api_keys(const std::string& path) {
  constexpr size_t kBytesMax = 1 << 20;
  LARIAT_ASSIGN(const std::string text, read_file(path, kBytesMax));
  std::vector<std::string> keys;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (!line.empty() && space(line.back())) line.pop_back();
    while (!line.empty() && space(line.front())) line.erase(0, 1);
    if (!line.empty() && line[0] != '#') keys.push_back(std::move(line));
  }
  if (keys.empty()) return make_error(Errc::kInvalidArgument, path + " holds no API key", "api-key-file");
  return keys;
}

}  // namespace lariat
