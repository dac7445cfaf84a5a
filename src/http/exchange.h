// One answer in progress: its generations in the engine and what has come of them. IO thread only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/answer.h"
#include "http/feed.h"

namespace lariat {

class Exchange;
using ExchangeTable = std::map<std::string, Exchange*>;  // by response id

class Exchange {
 public:
  struct Environment {
    Engine& engine;
    ExchangeTable& table;
    boost::asio::io_context& io;
    HttpMetrics& metrics;
    const TextCodec* codec;
    size_t pending_bytes_max;
  };

  Exchange(const Environment& environment, ParsedRequest request);
  // Whatever still runs in the engine is cancelled.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Gives every generation to the engine. After an error nothing runs any more.
  Status submit();
  // Ends the answer with `error` at its next step.
  void fail(ApiError error);

  // Moves what has arrived into the answer; a stream's payloads are appended to `payloads` (null without
  // stream).
  void drain(std::vector<std::string>* payloads);

  const std::optional<ApiError>& error() const { return error_; }
  bool finished() const { return answer_.finished(); }
  const Answer& answer() const { return answer_; }
  Feed& feed() { return *feed_; }
  Feed::Clock::time_point started() const { return feed_->started(); }
  const std::string& id() const { return id_; }

 private:
  void take(Feed::Item item, std::vector<std::string>* payloads);
  void cancel_rest();

  Engine& engine_;
  ExchangeTable& table_;
  const std::string id_;
  std::vector<GenerateRequest> generations_;  // until submitted
  std::vector<std::string> engine_ids_;
  std::vector<bool> running_;
  Answer answer_;
  std::shared_ptr<Feed> feed_;
  std::optional<ApiError> error_;
};

}  // namespace lariat
