// lariat tokenize: text to token ids, as the completions API would take it.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/model_session.h"
#include "app/tokenizer_files.h"

namespace lariat {

Result<int> cmd_tokenize(const OptionValues& values) {
  Faults faults(values);
  const ModelOptions options = read_model_options(values, faults);
  const auto* text = values.find("text");
  if (!text) faults.add("no text: lariat tokenize MODEL TEXT");
  if (!faults.empty()) return faults.error();
  LARIAT_ASSIGN(const ModelFiles files, open_files(options, std::nullopt));
  LARIAT_ASSIGN(const auto tokenizer, load_tokenizer(*files.files));
  if (!tokenizer) return make_error(Errc::kNotFound, files.files->label() + ": there is no tokenizer.json");
  LARIAT_ASSIGN(const std::vector<int32_t> ids, tokenizer->encode(text->text));
  if (read_flag(values, "json")) {
    nlohmann::ordered_json out;
    out["tokens"] = ids;
    out["count"] = ids.size();
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{}\n{} tokens\n", fmt::join(ids, " "), ids.size());
  }
  return 0;
}

}  // namespace lariat
