// Where a model's tensors come from, whatever the file format: asked by Hugging Face names.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/view.h"
#include "weights/file_set.h"

namespace lariat {

struct TensorRequirement;

struct TensorMeta {
  DType dtype = DType::kF32;
  Shape shape;
};

// A source of another format maps names to its own. All methods may be called from several threads.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Data aligned to its element type; valid until release(name) or the source's end. nullopt if there is no
  // such tensor, or if it cannot be viewed (then unusable() says why).
  virtual std::optional<ConstView> find(std::string_view name) const = 0;
  // Type and shape without touching the data; nullopt as find().
  virtual std::optional<TensorMeta> describe(std::string_view name) const {
    const auto view = find(name);
    if (!view) return std::nullopt;
    return TensorMeta{view->dtype, view->shape};
  }
  // Every tensor, sorted; also those that cannot be viewed.
  virtual std::vector<std::string_view> names() const = 0;
  // Why an existing tensor cannot be viewed ("stored as F8_E4M3, which is not supported"); else empty.
  virtual std::string unusable(std::string_view) const { return {}; }
  // The caller has copied `name` and uses no view of it any more: its memory may be given back. find() may
  // still be called again.
  virtual void release(std::string_view) const {}
  // kCorruptData if the files changed since they were opened; for the end of a load.
  virtual Status check_unchanged() const { return Ok{}; }
  // Remarks for the log: files ignored and the like.
  virtual std::vector<std::string> notes() const { return {}; }
};

// The tensors of `model.safetensors`, or of the shards that `model.safetensors.index.json` names (the index
// wins where both exist). kNotFound if there is neither; kCorruptData with all problems at once: shards
// missing or damaged, names that leave the folder, tensors that the index names and their shard lacks; beside
// those, if the entries can be read, what of `required` they do not meet.
Result<std::unique_ptr<TensorSource>> open_hf_source(const FileSet& files,
                                                     std::span<const TensorRequirement> required = {});

}  // namespace lariat
