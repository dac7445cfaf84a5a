#include "app/tokenizer_files.h"

#include "model/config.h"

namespace lariat {
namespace {

constexpr size_t kTokenizerBytesMax = size_t{256} << 20;
constexpr size_t kConfigFileBytesMax = size_t{8} << 20;

Result<std::string> read_if_present(const FileSet& files, std::string_view name, size_t bytes_max) {
  if (!files.contains(name)) return std::string();
  return files.read_text(name, bytes_max);
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> load_tokenizer(const FileSet& files) {
  if (!files.contains("tokenizer.json")) return std::unique_ptr<const Tokenizer>();
  LARIAT_ASSIGN(const std::string tokenizer, files.read_text("tokenizer.json", kTokenizerBytesMax));
  LARIAT_ASSIGN(const std::string config,
                read_if_present(files, "tokenizer_config.json", kConfigFileBytesMax));
  LARIAT_ASSIGN(const std::string generation,
                read_if_present(files, "generation_config.json", kConfigFileBytesMax));
  auto parsed = parse_tokenizer_config(config, generation);
  if (!parsed.ok()) return parsed.error().in(files.label());
  LARIAT_ASSIGN(const std::string jinja, read_if_present(files, "chat_template.jinja", kConfigFileBytesMax));
  if (!jinja.empty()) parsed->chat_template = jinja;
  const std::string label = files.label() + "/tokenizer.json";
  auto loaded = Tokenizer::parse(tokenizer, *std::move(parsed));
  if (!loaded.ok()) return loaded.error().in(label);
  if (!files.contains("config.json")) return loaded;
  LARIAT_ASSIGN(const std::string model, files.read_text("config.json", kConfigBytesMax));
  LARIAT_ASSIGN(const DecoderConfig decoder, parse_config(model));
  if (const Status fits = (*loaded)->check_fits(decoder.vocab); !fits.ok()) return fits.error().in(label);
  return loaded;
}

}  // namespace lariat
