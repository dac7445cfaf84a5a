#include "models/embedded.h"

#include <array>

// One file as read-only data, aligned for the tensors in it, from `symbol` to `symbol`_end.
#define LARIAT_EMBED(symbol, path)                      \
  asm(".pushsection .rodata\n"                          \
      ".balign 64\n"                                    \
      ".globl lariat_embed_" #symbol                    \
      "\n"                                              \
      ".hidden lariat_embed_" #symbol                   \
      "\n"                                              \
      "lariat_embed_" #symbol                           \
      ":\n"                                             \
      ".incbin \"" LARIAT_MODELS_DIR "/" path           \
      "\"\n"                                            \
      ".globl lariat_embed_" #symbol                    \
      "_end\n"                                          \
      ".hidden lariat_embed_" #symbol                   \
      "_end\n"                                          \
      "lariat_embed_" #symbol                           \
      "_end:\n"                                         \
      ".byte 0\n"                                       \
      ".popsection\n");                                 \
  extern "C" {                                          \
  extern const std::byte lariat_embed_##symbol[];       \
  extern const std::byte lariat_embed_##symbol##_end[]; \
  }

LARIAT_EMBED(needle_config, "needle-5m/config.json")
LARIAT_EMBED(needle_generation, "needle-5m/generation_config.json")
LARIAT_EMBED(needle_model, "needle-5m/model.safetensors")
LARIAT_EMBED(needle_tokenizer, "needle-5m/tokenizer.json")
LARIAT_EMBED(needle_tokenizer_config, "needle-5m/tokenizer_config.json")

namespace lariat {
namespace {

// Not by subtraction of two arrays, which the language leaves undefined: by address.
std::span<const std::byte> between(const std::byte* begin, const std::byte* end) {
  return {begin, reinterpret_cast<uintptr_t>(end) - reinterpret_cast<uintptr_t>(begin)};
}

}  // namespace

std::span<const EmbeddedModel> embedded_models() {
  static const std::array<EmbeddedFile, 5> needle = {{
      {"config.json", between(lariat_embed_needle_config, lariat_embed_needle_config_end), true},
      {"generation_config.json", between(lariat_embed_needle_generation, lariat_embed_needle_generation_end),
       true},
      {"model.safetensors", between(lariat_embed_needle_model, lariat_embed_needle_model_end), true},
      {"tokenizer.json", between(lariat_embed_needle_tokenizer, lariat_embed_needle_tokenizer_end), true},
      {"tokenizer_config.json",
       between(lariat_embed_needle_tokenizer_config, lariat_embed_needle_tokenizer_config_end), true},
  }};
  static const std::array<EmbeddedModel, 1> models = {{{"needle-5m", needle}}};
  return models;
}

}  // namespace lariat
