// From the MODEL argument to a model's files: a folder, a name in a models folder, or an embedded model.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/generation_config.h"
#include "weights/file_set.h"
#include "weights/random_source.h"
#include "weights/tensor_source.h"

namespace lariat {

struct EmbeddedModel {
  std::string_view name;
  std::span<const EmbeddedFile> files;
};

struct ModelSearch {
  std::vector<std::filesystem::path> dirs;  // --models-dir, asked in order for DIR/NAME
  std::span<const EmbeddedModel> embedded;  // asked last
};

struct ModelFiles {
  std::string id;                  // base name of the folder: the API's model id
  std::unique_ptr<FileSet> files;  // tokenizer and templates are read from here; never null
  DecoderConfig config;
  GenerationDefaults generation;
  std::vector<int32_t> eos_ids;         // generation_config.json's, else config.json's
  std::vector<std::string> notes;       // for the log
  std::optional<RandomWeights> random;  // set: there is no weights file
};

// An argument that is a folder with config.json is that folder; one without '/' is a name, looked for in
// search.dirs and then among the embedded models. kNotFound says where was looked; kUnsupported for `.gguf`
// and for a config of another architecture; every fault of the two configs at once.
Result<ModelFiles> resolve_model(std::string_view model, const ModelSearch& search);

// --random-weights CONFIG.json: the shape of that file (or of config.json in that folder), weights by seed in
// `dtype`, else in the type that the config claims, else f32. No tokenizer.
Result<ModelFiles> random_model(const std::filesystem::path& config, uint64_t seed,
                                std::optional<DType> dtype);

// Opens the weights and checks all that the config requires (C13, C14); `notes` gains remarks. Nothing is
// read beyond the headers.
Result<std::unique_ptr<TensorSource>> open_weights(const ModelFiles& model, std::vector<std::string>* notes);

struct ModelSummary {
  std::string architecture;  // config.json's class name, "LlamaForCausalLM"
  int64_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  int64_t context = 0;        // tokens
  int64_t tensors = 0;        // in the files
  int64_t weights_bytes = 0;  // of the tensors that the model uses, as stored
};

Result<ModelSummary> inspect_model(const ModelFiles& model);
// The object of `lariat inspect --json` (docs/design.md §7).
nlohmann::json to_json(const ModelSummary& summary);

}  // namespace lariat
