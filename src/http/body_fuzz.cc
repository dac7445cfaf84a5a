// A connection's bytes from strangers: the request parser takes any split of them, and bodies go on to the
// API.
#include <cstdint>
#include <string>
#include <string_view>

#include "api/byte_codec_test_util.h"
#include "api/request.h"
#include "http/request_parser.h"
#include "http/routes.h"

// The first byte says how many bytes arrive at a time.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lariat::ByteCodec codec;
  static const lariat::ModelContext model = lariat::byte_model(codec);
  if (size == 0) return 0;
  const size_t piece = 1 + data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  lariat::RequestParser parser(1024, 4096);
  std::string buffer;
  for (size_t at = 0; at < bytes.size() && !parser.done() && !parser.failed(); at += piece) {
    buffer += bytes.substr(at, piece);
    const size_t taken = parser.feed(buffer);
    LARIAT_CHECK(taken <= buffer.size());
    buffer.erase(0, taken);
    LARIAT_CHECK(parser.failed() || buffer.size() <= 1024 + piece + 4);
  }
  if (!parser.done()) return 0;
  const lariat::RequestHead head = parser.head();
  (void)lariat::find_route(head.method, head.path);
  (void)lariat::authorized({"key"}, head.authorization);
  const std::string body = parser.take_body();
  LARIAT_CHECK(body.size() <= 4096);
  (void)lariat::parse_chat(body, model).ok();
  (void)lariat::parse_completion(body, model).ok();
  return 0;
}
