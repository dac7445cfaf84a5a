// Any bytes as a safetensors file: refused, or every tensor's bytes can be read.
#include <cstdint>

#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using lariat::MappedFile;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = lariat::SafetensorsFile::create(MappedFile::view(bytes, "fuzz"));
  if (!file.ok()) {
    LARIAT_CHECK(!file.error().message.empty() && file.error().message.size() < 20'000, "message of {} bytes",
                 file.error().message.size());
    return 0;
  }
  uint64_t sum = 0;
  size_t total = 0;
  for (const auto& t : file->tensors()) {
    total += t.end - t.begin;
    const auto view = file->find(t.name);
    LARIAT_CHECK(view.has_value() == file->unusable(t.name).empty(), "{}", t.name);
    if (!view) continue;
    LARIAT_CHECK(static_cast<size_t>(view->bytes()) == t.end - t.begin, "{}", t.name);
    for (size_t i = 0; i < t.end - t.begin; ++i) sum += static_cast<const uint8_t*>(view->data)[i];
  }
  LARIAT_CHECK(total == file->data_bytes(), "tensors of {} bytes in {}", total, file->data_bytes());
  volatile uint64_t sink = sum;
  (void)sink;
  return 0;
}
