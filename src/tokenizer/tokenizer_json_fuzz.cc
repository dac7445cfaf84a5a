// tokenizer.json from an enemy: whatever loads must encode and decode without a fault. Input: the JSON, a
// NUL, a text.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = input.find('\0');
  const std::string_view text = nul == input.npos ? "a b\xff 12 <s>" : input.substr(nul + 1);
  const auto tokenizer = lariat::Tokenizer::parse(input.substr(0, nul));
  if (!tokenizer.ok()) return 0;
  const auto ids = (*tokenizer)->encode(text);
  if (!ids.ok()) return 0;
  lariat::StreamDecoder stream(**tokenizer, false);
  std::string joined;
  for (const int32_t id : *ids) {
    LARIAT_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
    joined += stream.feed(id);
  }
  joined += stream.finish();
  LARIAT_CHECK(joined == (*tokenizer)->decode(*ids, false));
  return 0;
}
