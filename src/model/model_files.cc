#include "model/model_files.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/problems.h"
#include "model/required_tensors.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kGeneration = "generation_config.json";

// The last component of a folder's path, also of "models/x/" and ".".
std::string base_name(const fs::path& folder) {
  std::error_code ec;
  const fs::path full = fs::weakly_canonical(folder, ec);
  const std::string name = (ec ? folder : full).filename().string();
  return name.empty() ? "model" : name;
}

Result<GenerationDefaults> read_generation(const FileSet& files, int64_t vocab) {
  if (!files.contains(kGeneration)) return GenerationDefaults{};
  LARIAT_ASSIGN(const std::string text, files.read_text(kGeneration, kConfigBytesMax));
  return parse_generation_config(text, vocab);
}

// Both configs, with the faults of both in one error.
Result<ModelFiles> load(std::string id, std::unique_ptr<FileSet> files) {
  LARIAT_ASSIGN(const std::string text, files->read_text(kConfig, kConfigBytesMax));
  auto config = parse_config(text);
  auto generation = read_generation(*files, config.ok() ? config->vocab : kVocabMax);
  if (!config.ok()) {
    Error error = config.error().in(files->label());
    if (!generation.ok()) error.message += "; " + generation.error().message;
    return error;
  }
  if (!generation.ok()) return generation.error().in(files->label());
  ModelFiles model;
  model.id = std::move(id);
  model.config = std::move(*config);
  model.generation = std::move(*generation);
  model.eos_ids = model.generation.eos_ids.empty() ? model.config.eos_ids : model.generation.eos_ids;
  model.notes = model.generation.notes;
  model.files = std::move(files);
  return model;
}

bool is_model_folder(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path / kConfig, ec);
}

Error not_found(std::string_view model, const ModelSearch& search) {
  std::error_code ec;
  const fs::path path(model);
  if (fs::is_directory(path, ec)) {
    return make_error(Errc::kNotFound, fmt::format("{}: the folder has no config.json", model));
  }
  if (fs::exists(path, ec)) {
    return make_error(Errc::kUnsupported,
                      fmt::format("{}: a model is a folder with config.json and safetensors files", model));
  }
  std::string places = "as a folder";
  for (const fs::path& dir : search.dirs) places += ", in " + dir.string();
  std::string names;
  for (const EmbeddedModel& e : search.embedded) names += (names.empty() ? "" : ", ") + std::string(e.name);
  return make_error(Errc::kNotFound,
                    fmt::format("no model \"{}\": looked for it {}{}", printable(model), places,
                                names.empty() ? "" : "; embedded models are: " + names));
}

}  // namespace

Result<ModelFiles> resolve_model(std::string_view model, const ModelSearch& search) {
  if (model.empty()) return make_error(Errc::kInvalidArgument, "MODEL is empty");
  if (model.find('\0') != std::string_view::npos) {
    return make_error(Errc::kInvalidArgument, "MODEL contains a NUL byte");
  }
  if (model.ends_with(".gguf")) {
    return make_error(Errc::kUnsupported,
                      fmt::format("{}: GGUF is not supported yet; give a folder with config.json "
                                  "and safetensors files",
                                  model));
  }
  const fs::path path(model);
  if (is_model_folder(path)) return load(base_name(path), folder_files(path));
  if (is_plain_file_name(model)) {
    for (const fs::path& dir : search.dirs) {
      if (is_model_folder(dir / path)) return load(std::string(model), folder_files(dir / path));
    }
    for (const EmbeddedModel& e : search.embedded) {
      if (e.name == model)
        return load(std::string(model), embedded_files("embedded:" + std::string(model), e.files));
    }
  }
  return not_found(model, search);
}

Result<ModelFiles> random_model(const fs::path& config, uint64_t seed, std::optional<DType> dtype) {
  if (dtype && *dtype != DType::kF32 && *dtype != DType::kBF16 && *dtype != DType::kF16) {
    return make_error(Errc::kUnsupported, fmt::format("random weights of type {}", dtype_name(*dtype)));
  }
  std::error_code ec;
  const fs::path file = fs::is_directory(config, ec) ? config / kConfig : config;
  LARIAT_ASSIGN(const std::string text, read_file(file, kConfigBytesMax));
  auto parsed = parse_config(text);
  if (!parsed.ok()) return parsed.error().in(file.string());
  ModelFiles model;
  model.id =
      file.filename() == kConfig ? base_name(fs::absolute(file, ec).parent_path()) : file.stem().string();
  model.config = std::move(*parsed);
  model.eos_ids = model.config.eos_ids;
  model.files = embedded_files("random weights of " + file.string(), {});
  model.random = RandomWeights{seed, dtype.value_or(model.config.dtype.value_or(DType::kF32))};
  model.notes.push_back(fmt::format("random weights: {}, seed {}", dtype_name(model.random->dtype), seed));
  return model;
}

Result<std::unique_ptr<TensorSource>> open_weights(const ModelFiles& model, std::vector<std::string>* notes) {
  const std::vector<TensorRequirement> required = required_tensors(model.config);
  if (model.random) return random_source(required, *model.random);
  LARIAT_ASSIGN(std::unique_ptr<TensorSource> source, open_hf_source(*model.files, required));
  std::string extras;
  const Status fits = check_requirements(*source, required, &extras);
  if (!fits.ok()) return fits.error().in(model.files->label());
  if (notes) {
    for (std::string& note : source->notes()) notes->push_back(std::move(note));
    if (!extras.empty()) notes->push_back(model.files->label() + ": " + extras);
  }
  return source;
}

Result<ModelSummary> inspect_model(const ModelFiles& model) {
  LARIAT_ASSIGN(const std::unique_ptr<TensorSource> source, open_weights(model, nullptr));
  const DecoderConfig& c = model.config;
  ModelSummary s;
  s.architecture = architecture_class(c.architecture);
  s.layers = c.layers;
  s.heads = c.heads;
  s.kv_heads = c.kv_heads;
  s.head_dim = c.head_dim;
  s.vocab = c.vocab;
  s.context = c.max_position;
  s.tensors = static_cast<int64_t>(source->names().size());
  for (const TensorRequirement& r : required_tensors(c)) {
    const auto meta = source->describe(r.name);
    if (meta) s.weights_bytes += meta->shape.elements() * static_cast<int64_t>(dtype_size(meta->dtype));
  }
  return s;
}

nlohmann::json to_json(const ModelSummary& s) {
  return {{"architecture", s.architecture}, {"layers", s.layers},     {"heads", s.heads},
          {"kv_heads", s.kv_heads},         {"head_dim", s.head_dim}, {"vocab", s.vocab},
          {"context", s.context},           {"tensors", s.tensors},   {"weights_bytes", s.weights_bytes}};
}

}  // namespace lariat
