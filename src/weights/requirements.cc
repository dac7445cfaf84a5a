#include "weights/requirements.h"

#include <algorithm>
#include <set>

#include "base/problems.h"

namespace lariat {
namespace {

void check_one(const TensorSource& source, const TensorRequirement& need, Problems& problems) {
  const auto meta = source.describe(need.name);
  if (!meta) {
    if (const std::string why = source.unusable(need.name); !why.empty()) {
      problems.add("\"" + need.name + "\" is " + why);
    } else if (!need.optional) {
      problems.add("\"" + need.name + "\" " + need.shape.str() + " is missing");
    }
    return;
  }
  if (meta->shape != need.shape) {
    problems.add("\"" + need.name + "\" has shape " + meta->shape.str() + ", the config needs " +
                 need.shape.str());
  }
  if (std::find(need.dtypes.begin(), need.dtypes.end(), meta->dtype) == need.dtypes.end()) {
    problems.add("\"" + need.name + "\" has type " + std::string(dtype_name(meta->dtype)));
  }
}

std::string note_extras(const std::vector<std::string_view>& extras) {
  constexpr size_t kShown = 5;
  if (extras.empty()) return {};
  std::string note = std::to_string(extras.size()) + (extras.size() == 1 ? " tensor" : " tensors") +
                     " that the model does not use, ignored: ";
  for (size_t i = 0; i < std::min(kShown, extras.size()); ++i) note += (i ? ", " : "") + printable(extras[i]);
  return extras.size() > kShown ? note + ", .." : note;
}

}  // namespace

void add_unmet(const TensorSource& source, std::span<const TensorRequirement> requirements,
               const std::function<bool(std::string_view)>& accused, Problems& problems) {
  for (const TensorRequirement& need : requirements) {
    if (!accused || !accused(need.name)) check_one(source, need, problems);
  }
}

Status check_requirements(const TensorSource& source, std::span<const TensorRequirement> requirements,
                          std::string* extras_note) {
  Problems problems;
  add_unmet(source, requirements, nullptr, problems);
  std::set<std::string_view> known;
  for (const TensorRequirement& need : requirements) known.insert(need.name);
  std::vector<std::string_view> extras;
  for (const std::string_view name : source.names()) {
    if (!known.contains(name)) extras.push_back(name);
  }
  if (extras_note) *extras_note = note_extras(extras);
  if (problems.empty()) return Ok{};
  return problems.error(Errc::kCorruptData, "the weights do not fit the config");
}

}  // namespace lariat
