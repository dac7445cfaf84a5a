// open_hf_source(): one safetensors file, or shards under an index.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/problems.h"
#include "weights/requirements.h"
#include "weights/safetensors.h"
#include "weights/tensor_source.h"

namespace lariat {
namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = 64'000'000;
constexpr size_t kShardsMax = 4096;

class HfSource final : public TensorSource {
 public:
  std::optional<ConstView> find(std::string_view name) const override {
    const SafetensorsFile* shard = shard_of(name);
    return shard ? shard->find(name) : std::nullopt;
  }
  // Entries of damaged files too.
  std::optional<TensorMeta> describe(std::string_view name) const override {
    const SafetensorsFile* shard = shard_of(name);
    const SafetensorsFile::Tensor* t = shard ? shard->find_entry(name) : nullptr;
    const auto dtype = t ? SafetensorsFile::claimed_dtype(*t) : std::nullopt;
    if (!dtype || t->shape.size() > static_cast<size_t>(Shape::kRankMax)) return std::nullopt;
    TensorMeta meta{*dtype, {}};
    for (const int64_t d : t->shape) meta.shape.push_back(d);
    return meta;
  }
  std::vector<std::string_view> names() const override {
    std::vector<std::string_view> result;
    result.reserve(where_.size());
    for (const auto& [name, shard] : where_) result.push_back(name);
    return result;
  }
  std::string unusable(std::string_view name) const override {
    const SafetensorsFile* shard = shard_of(name);
    return shard ? shard->unusable(name) : std::string();
  }
  void release(std::string_view name) const override {
    if (const SafetensorsFile* shard = shard_of(name)) shard->release(name);
  }
  Status check_unchanged() const override {
    for (const SafetensorsFile& shard : shards_) LARIAT_RETURN_IF_ERROR(shard.file().check_unchanged());
    return Ok{};
  }
  std::vector<std::string> notes() const override { return notes_; }

  void note(std::string text) { notes_.push_back(std::move(text)); }
  void add_single(SafetensorsFile file) {
    for (const auto& t : file.tensors()) where_.emplace(t.name, shards_.size());
    shards_.push_back(std::move(file));
  }
  // `listed`: the tensors that the index puts into this shard.
  void add_shard(SafetensorsFile file, const std::vector<std::string>& listed, Problems& problems) {
    size_t found = 0;
    for (const std::string& name : listed) {
      if (!file.find_entry(name)) {
        accused_.insert(name);
        problems.add("\"" + printable(name) + "\" is not in " + file.file().label() + " as the index says");
        continue;
      }
      where_.emplace(name, shards_.size());
      ++found;
    }
    if (const size_t extra = file.tensors().size() - found; extra > 0) {
      note(file.file().label() + ": " + std::to_string(extra) +
           " tensors that the index does not name, ignored");
    }
    if (file.copied_bytes() > 0) {
      note(file.file().label() + ": " + std::to_string(file.copied_bytes()) + " bytes copied for alignment");
    }
    shards_.push_back(std::move(file));
  }

  // The shard of these tensors could not be looked at.
  void accuse(const std::vector<std::string>& names) { accused_.insert(names.begin(), names.end()); }
  // Whether a fault that was found says already why `name` cannot be used.
  bool accused(std::string_view name) const {
    const SafetensorsFile* shard = shard_of(name);
    if (!shard) return accused_.contains(name);
    return !shard->find_entry(name)->readable;
  }

 private:
  const SafetensorsFile* shard_of(std::string_view name) const {
    const auto it = where_.find(name);
    return it == where_.end() ? nullptr : &shards_[it->second];
  }

  std::vector<SafetensorsFile> shards_;
  std::map<std::string, size_t, std::less<>> where_;
  std::set<std::string, std::less<>> accused_;
  std::vector<std::string> notes_;
};

using ShardMap = std::map<std::string, std::vector<std::string>>;  // shard file -> tensor names

// The index's weight_map turned round. Names that are no plain file names are problems, not lookups.
Result<ShardMap> read_index(const FileSet& files, Problems& problems) {
  LARIAT_ASSIGN(const std::string text, files.read_text(kIndex, kIndexBytesMax));
  LARIAT_ASSIGN(const nlohmann::json index,
                parse_json(text, {.depth_max = 8, .reject_duplicate_keys = true}));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) {
    return make_error(Errc::kCorruptData, "no object \"weight_map\"");
  }
  ShardMap shards;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string()) {
      problems.add("weight_map[\"" + printable(name) + "\"] is not a string");
    } else if (!is_plain_file_name(shard.get_ref<const std::string&>())) {
      problems.add("weight_map[\"" + printable(name) + "\"] = \"" +
                   printable(shard.get_ref<const std::string&>()) +
                   "\" is not a file name in the model's folder");
    } else {
      shards[shard.get<std::string>()].push_back(name);
    }
  }
  if (shards.size() > kShardsMax) {
    return make_error(Errc::kCorruptData, std::to_string(shards.size()) + " shards, at most " +
                                              std::to_string(kShardsMax) + " are accepted");
  }
  return shards;
}

// The error of damaged files, with what `source` does not meet of `required`.
Error all_faults(const Problems& damage, std::string_view where, const HfSource& source,
                 std::span<const TensorRequirement> required) {
  Error error = damage.error(Errc::kCorruptData, where);
  Problems unmet;
  add_unmet(source, required, [&](std::string_view name) { return source.accused(name); }, unmet);
  if (!unmet.empty()) {
    error.message += "; " + unmet.error(error.code, "the weights do not fit the config").message;
  }
  return error;
}

Result<std::unique_ptr<TensorSource>> open_shards(const FileSet& files,
                                                  std::span<const TensorRequirement> required) {
  const std::string label = files.label() + "/" + std::string(kIndex);
  Problems problems;
  const auto shards = read_index(files, problems);
  if (!shards.ok()) return shards.error().in(label);
  auto source = std::make_unique<HfSource>();
  for (const auto& [shard, names] : *shards) {
    auto mapped = files.open(shard);
    if (!mapped.ok()) {
      problems.add(mapped.error().message + " (" + std::to_string(names.size()) + " tensors)");
      source->accuse(names);
      continue;
    }
    Problems damage;
    const std::string shard_label = mapped->label();
    auto file = SafetensorsFile::inspect(std::move(*mapped), damage);
    if (!file.ok()) {
      problems.add(file.error().message);
      source->accuse(names);
      continue;
    }
    if (!damage.empty()) {
      problems.add(damage.error(Errc::kCorruptData, shard_label + ": damaged safetensors file").message);
    }
    source->add_shard(std::move(*file), names, problems);
  }
  if (!problems.empty()) return all_faults(problems, label, *source, required);
  if (!shards->contains(std::string(kSingle)) && files.contains(kSingle)) {
    source->note(files.label() + "/" + std::string(kSingle) + ": not named by the index, ignored");
  }
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_hf_source(const FileSet& files,
                                                     std::span<const TensorRequirement> required) {
  if (files.contains(kIndex)) return open_shards(files, required);
  if (!files.contains(kSingle)) {
    return make_error(Errc::kNotFound, files.label() + ": neither " + std::string(kSingle) + " nor " +
                                           std::string(kIndex) + " is there");
  }
  LARIAT_ASSIGN(MappedFile mapped, files.open(kSingle));
  Problems damage;
  const std::string label = mapped.label();
  LARIAT_ASSIGN(SafetensorsFile file, SafetensorsFile::inspect(std::move(mapped), damage));
  auto source = std::make_unique<HfSource>();
  if (!damage.empty()) {
    source->add_single(std::move(file));
    return all_faults(damage, label + ": damaged safetensors file", *source, required);
  }
  if (file.copied_bytes() > 0) {
    source->note(file.file().label() + ": " + std::to_string(file.copied_bytes()) +
                 " bytes copied for alignment");
  }
  source->add_single(std::move(file));
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace lariat
