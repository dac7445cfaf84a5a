// Paths and methods, and the answers that need no generation.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/api_error.h"
#include "api/model_context.h"
#include "head/engine.h"

namespace lariat {

enum class Endpoint {
  kNone,
  kChat,
  kCompletion,
  kModels,
  kModel,
  kHealth,
  kMetrics,
  kTokenize,
  kDetokenize,
  kState,
  kCancel,
};

struct Route {
  Endpoint endpoint = Endpoint::kNone;
  std::string argument;    // what stands behind the path's last fixed part
  std::string_view allow;  // methods, as the Allow header lists them
  bool method_allowed = true;
};

// HEAD stands for GET.
Route find_route(std::string_view method, std::string_view path);

// "chat", "models", ..: the label of metrics and logs.
std::string_view endpoint_name(Endpoint endpoint);

// One answer that is complete before any of it is sent.
struct Reply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

Reply error_reply(const ApiError& error);
// 404 and 405 of a route that leads nowhere.
Reply no_route_reply(const Route& route, std::string_view method, std::string_view path);
Reply models_reply(const ModelContext& model);
Reply model_reply(const ModelContext& model, const std::string& id);
// 200, or 503 with the reason while the engine is not ready.
Reply health_reply(const EngineState& state, bool draining);
Reply state_reply(const EngineState& state);

// True if no keys are set or `authorization` is "Bearer KEY" with one of them. Time does not depend on where
// a wrong key differs.
bool authorized(const std::vector<std::string>& keys, std::string_view authorization);
ApiError unauthorized_error();

// Status line and headers, with the empty line. `length` < 0: chunked.
std::string response_head(const Reply& reply, int64_t length, bool keep_alive);

}  // namespace lariat
