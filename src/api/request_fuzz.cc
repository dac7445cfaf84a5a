// Bodies from strangers: parsing never crashes, and what it accepts keeps its promises to the engine.
#include <cstdint>
#include <string_view>

#include "api/answer.h"
#include "api/byte_codec_test_util.h"
#include "api/request.h"

namespace {

void judge(lariat::ApiResult<lariat::ParsedRequest> parsed, const lariat::ModelContext& model) {
  if (!parsed.ok()) {
    LARIAT_CHECK(parsed.error().status == 400 || parsed.error().status == 404);
    LARIAT_CHECK(!lariat::error_body(parsed.error()).empty());
    return;
  }
  const lariat::ParsedRequest& r = parsed.value();
  LARIAT_CHECK(!r.generations.empty());
  for (const lariat::GenerateRequest& g : r.generations) {
    LARIAT_CHECK(!g.prompt.empty() && g.max_tokens >= 0 && g.n >= 1);
    LARIAT_CHECK(static_cast<int64_t>(g.prompt.size()) + g.max_tokens <= model.context_tokens + 1);
    for (const int32_t id : g.prompt) LARIAT_CHECK(id >= 0 && id < model.vocab);
    for (const auto& stop : g.stop) LARIAT_CHECK(!stop.empty());
    LARIAT_CHECK(g.sampling.temperature >= 0 && g.sampling.temperature <= 2);
  }
  lariat::Answer answer(r, model.codec);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lariat::ByteCodec codec;
  static const lariat::ModelContext model = lariat::byte_model(codec);
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  judge(lariat::parse_chat(body, model), model);
  judge(lariat::parse_completion(body, model), model);
  (void)lariat::answer_tokenize(body, model).ok();
  (void)lariat::answer_detokenize(body, model).ok();
  return 0;
}
