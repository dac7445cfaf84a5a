#include "api/api_error.h"

#include <nlohmann/json.hpp>

#include "api/wire.h"
#include "base/excerpt.h"

namespace lariat {
namespace {

constexpr int kRetryAfterS = 1;
// A template may raise with a whole message in its text.
constexpr size_t kMessageBytesMax = 1024;

}  // namespace

ApiError to_api_error(const Error& error) {
  ApiError e;
  e.message = excerpt(error.message, kMessageBytesMax);
  e.param = error.param;
  switch (error.code) {
    case Errc::kInvalidArgument:
      e.status = 400;
      e.type = "invalid_request_error";
      break;
    case Errc::kUnsupported:
      e.status = 400;
      e.type = "invalid_request_error";
      e.code = "unsupported";
      break;
    case Errc::kNotFound:
      e.status = 404;
      e.type = "invalid_request_error";
      e.code = error.param == "model" ? "model_not_found" : "not_found";
      break;
    case Errc::kResourceExhausted:
      e.status = 429;
      e.type = "rate_limit_error";
      e.code = "queue_full";
      e.retry_after_s = kRetryAfterS;
      break;
    case Errc::kUnavailable:
      e.status = 503;
      e.type = "server_error";
      e.code = "unavailable";
      e.retry_after_s = kRetryAfterS;
      break;
    case Errc::kCancelled:
      e.status = 499;
      e.type = "cancelled";
      e.code = "request_cancelled";
      break;
    case Errc::kDeadlineExceeded:
      e.status = 504;
      e.type = "server_error";
      e.code = "deadline_exceeded";
      break;
    case Errc::kInternal:
    case Errc::kCorruptData:
      e.status = 500;
      e.type = "server_error";
      e.code = "internal_error";
      break;
  }
  return e;
}

Error field_error(std::string path, std::string_view what) {
  std::string param = path.substr(0, path.find_first_of(".["));
  return make_error(Errc::kInvalidArgument, std::move(path) + ": " + std::string(what), std::move(param));
}

std::string error_body(const ApiError& error) {
  const auto or_null = [](const std::string& s) { return s.empty() ? WireJson(nullptr) : WireJson(s); };
  WireJson body;
  body["error"] = {{"message", error.message},
                   {"type", error.type},
                   {"param", or_null(error.param)},
                   {"code", or_null(error.code)}};
  return to_wire(body);
}

}  // namespace lariat
