#include "http/routes.h"

#include <fmt/core.h>

#include "api/wire.h"
#include "base/excerpt.h"

namespace lariat {
namespace {

struct Entry {
  Endpoint endpoint;
  std::string_view name;
  std::string_view path;
  std::string_view method;
  bool prefix;  // an argument follows
};

constexpr Entry kRoutes[] = {
    {Endpoint::kChat, "chat", "/v1/chat/completions", "POST", false},
    {Endpoint::kCompletion, "completions", "/v1/completions", "POST", false},
    {Endpoint::kModels, "models", "/v1/models", "GET", false},
    {Endpoint::kModel, "model", "/v1/models/", "GET", true},
    {Endpoint::kHealth, "health", "/health", "GET", false},
    {Endpoint::kMetrics, "metrics", "/metrics", "GET", false},
    {Endpoint::kTokenize, "tokenize", "/tokenize", "POST", false},
    {Endpoint::kDetokenize, "detokenize", "/detokenize", "POST", false},
    {Endpoint::kState, "state", "/v1/lariat/state", "GET", false},
    {Endpoint::kCancel, "cancel", "/v1/lariat/cancel/", "POST", true},
};

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

WireJson model_json(const ModelContext& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "lariat"},
          {"max_model_len", model.tokens_max()}};
}

WireJson rank_json(const RankState& r) {
  return {{"rank", r.rank},
          {"pid", r.pid},
          {"host", r.host},
          {"device", r.device},
          {"state", r.state},
          {"kv_pages_used", r.kv_pages_used},
          {"kv_pages_total", r.kv_pages_total},
          {"rss_bytes", r.rss_bytes},
          {"heartbeat_age_ms", r.heartbeat_age_ms},
          {"comm_wait_us", r.comm_wait_us},
          {"comm_wait_total_us", r.comm_wait_total_us},
          {"restarts", r.restarts}};
}

WireJson request_json(const RequestState& r) {
  return {{"id", r.id},
          {"state", r.state},
          {"prompt_tokens", r.prompt_tokens},
          {"prefilled_tokens", r.prefilled_tokens},
          {"completion_tokens", r.completion_tokens},
          {"age_seconds", r.age_seconds}};
}

WireJson optional_json(const std::optional<int64_t>& value) {
  return value ? WireJson(*value) : WireJson(nullptr);
}

WireJson recovery_json(const std::optional<RecoveryState>& r) {
  if (!r) return nullptr;
  return {{"epoch", r->epoch},
          {"rank", r->rank},
          {"cause", r->cause},
          {"ended_ms", r->ended_ms},
          {"formed_ms", optional_json(r->formed_ms)},
          {"recomputed_ms", optional_json(r->recomputed_ms)}};
}

// Runs over the whole of both, whatever they hold.
bool equal_constant_time(std::string_view secret, std::string_view given) {
  size_t difference = secret.size() ^ given.size();
  for (size_t i = 0; i < given.size(); ++i) {
    const char s = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<unsigned char>(s ^ given[i]);
  }
  return difference == 0;
}

}  // namespace

Route find_route(std::string_view method, std::string_view path) {
  Route route;
  for (const Entry& e : kRoutes) {
    const bool hit = e.prefix ? path.size() > e.path.size() && path.starts_with(e.path) : path == e.path;
    if (!hit) continue;
    route.endpoint = e.endpoint;
    route.argument = std::string(path.substr(e.path.size()));
    route.allow = e.method == "GET" ? "GET, HEAD" : e.method;
    route.method_allowed = method == e.method || (e.method == "GET" && method == "HEAD");
    return route;
  }
  return route;
}

std::string_view endpoint_name(Endpoint endpoint) {
  for (const Entry& e : kRoutes) {
    if (e.endpoint == endpoint) return e.name;
  }
  return "none";
}

Reply error_reply(const ApiError& error) {
  Reply reply;
  reply.status = error.status;
  reply.body = error_body(error);
  if (error.retry_after_s > 0) reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

Reply no_route_reply(const Route& route, std::string_view method, std::string_view path) {
  ApiError e;
  e.type = "invalid_request_error";
  if (route.endpoint == Endpoint::kNone) {
    e.status = 404;
    e.code = "unknown_url";
    e.message = fmt::format("unknown request URL: {} {}", method, excerpt(path, 256));
    return error_reply(e);
  }
  e.status = 405;
  e.code = "method_not_allowed";
  e.message = fmt::format("{} is not allowed here; allowed: {}", method.substr(0, 32), route.allow);
  Reply reply = error_reply(e);
  reply.headers.emplace_back("Allow", std::string(route.allow));
  return reply;
}

Reply models_reply(const ModelContext& model) {
  WireJson list = WireJson::array();
  list.push_back(model_json(model));
  Reply reply;
  reply.body = to_wire({{"object", "list"}, {"data", std::move(list)}});
  return reply;
}

Reply model_reply(const ModelContext& model, const std::string& id) {
  if (id != model.id) {
    return error_reply(to_api_error(make_error(
        Errc::kNotFound,
        fmt::format("the model `{}` is not served here; this server has `{}`", excerpt(id, 256), model.id),
        "model")));
  }
  Reply reply;
  reply.body = to_wire(model_json(model));
  return reply;
}

Reply health_reply(const EngineState& state, bool draining) {
  Reply reply;
  const bool ready = state.ready && !draining;
  reply.status = ready ? 200 : 503;
  WireJson body = {{"status", ready ? "ok" : draining ? "draining" : "not ready"}, {"model", state.model}};
  if (!ready) {
    body["reason"] = draining ? "the server is shutting down" : state.reason;
    reply.headers.emplace_back("Retry-After", "1");
  }
  reply.body = to_wire(body);
  return reply;
}

Reply state_reply(const EngineState& state) {
  WireJson ranks = WireJson::array(), requests = WireJson::array();
  for (const RankState& r : state.ranks) ranks.push_back(rank_json(r));
  for (const RequestState& r : state.requests) requests.push_back(request_json(r));
  Reply reply;
  reply.body = to_wire({{"model", state.model},
                        {"epoch", state.epoch},
                        {"ready", state.ready},
                        {"reason", state.reason},
                        {"restarts", state.worker_restarts_total},
                        {"ranks", std::move(ranks)},
                        {"last_recovery", recovery_json(state.last_recovery)},
                        {"requests", std::move(requests)},
                        {"requests_running", state.requests_running},
                        {"requests_waiting", state.requests_waiting},
                        {"kv_pages_used", state.kv_pages_used},
                        {"kv_pages_total", state.kv_pages_total},
                        {"kv_page_tokens", state.kv_page_tokens}});
  return reply;
}

bool authorized(const std::vector<std::string>& keys, std::string_view authorization) {
  if (keys.empty()) return true;
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) return false;
  const std::string_view given = authorization.substr(kScheme.size());
  bool any = false;
  for (const std::string& key : keys) any |= equal_constant_time(key, given);
  return any;
}

ApiError unauthorized_error() {
  ApiError e;
  e.status = 401;
  e.type = "invalid_request_error";
  e.code = "invalid_api_key";
  e.message = "this server asks for an API key: send \"Authorization: Bearer KEY\" with one of its keys";
  return e;
}

std::string response_head(const Reply& reply, int64_t length, bool keep_alive) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nServer: lariat\r\nContent-Type: {}\r\n", reply.status,
                                reason_phrase(reply.status), reply.content_type);
  out += length < 0 ? "Transfer-Encoding: chunked\r\n" : fmt::format("Content-Length: {}\r\n", length);
  for (const auto& [name, value] : reply.headers) out += fmt::format("{}: {}\r\n", name, value);
  out += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

}  // namespace lariat
