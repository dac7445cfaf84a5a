// lariat inspect: what a model's files say, without loading them.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/model_session.h"

namespace lariat {

Result<int> cmd_inspect(const OptionValues& values) {
  Faults faults(values);
  const ModelOptions options = read_model_options(values, faults);
  if (!faults.empty()) return faults.error();
  LARIAT_ASSIGN(const ModelFiles files, open_files(options, std::nullopt));
  LARIAT_ASSIGN(const ModelSummary s, inspect_model(files));
  if (read_flag(values, "json")) {
    fmt::print("{}\n", to_json(s).dump());
    return 0;
  }
  fmt::print(
      "architecture   {}\nlayers         {}\nheads          {} query, {} key/value, {} wide\nvocabulary     "
      "{}\n"
      "context        {} tokens\ntensors        {}\nweights        {:.1f} MiB\n",
      s.architecture, s.layers, s.heads, s.kv_heads, s.head_dim, s.vocab, s.context, s.tensors,
      static_cast<double>(s.weights_bytes) / 0x1p20);
  for (const std::string& note : files.notes) fmt::print(stderr, "note: {}\n", note);
  return 0;
}

}  // namespace lariat
