// The OpenAI-compatible server in front of an Engine: sockets, SSE, limits. docs/design.md §8, docs/api.md.
#pragma once

#include <chrono>
#include <memory>

#include "api/model_context.h"
#include "base/result.h"
#include "head/engine.h"
#include "http/options.h"

namespace lariat {

class HttpServer {
 public:
  // Listens at once and serves on threads of its own. `engine` and `model.codec` must outlive the server.
  // kInvalidArgument for a host that is no address, kUnavailable if the port cannot be bound.
  static Result<std::unique_ptr<HttpServer>> start(HttpOptions options, Engine& engine, ModelContext model);
  ~HttpServer();  // stop(0)
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Takes no more connections or requests; running ones may go on for `drain`, then end with an error.
  // Returns when every connection is closed and every generation cancelled. Idempotent.
  void stop(std::chrono::milliseconds drain);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What HttpOptions::host may be: an IP address, or "localhost".
bool is_listen_address(const std::string& host);

// Keys of a file, one a line; blank lines and lines starting with '#' are skipped. kInvalidArgument if there
// is none, kNotFound if there is no such file.
Result<std::vector<std::string>> read_api_keys(const std::string& path);

}  // namespace lariat
