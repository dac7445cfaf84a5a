#include "tokenizer/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/file.h"
#include "base/problems.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace lariat {
namespace {

constexpr size_t kTokenizerBytesMax = 256u << 20;
constexpr size_t kConfigBytesMax = 16u << 20;

// The text of a file that may be absent.
Result<std::string> read_optional(const std::filesystem::path& path) {
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) return std::string();
  return read_file(path, kConfigBytesMax);
}

}  // namespace

// One encode call: the way from text to words, and what it keeps between words.
struct Tokenizer::Encoder {
  const Tokenizer& t;
  const EncodeOptions options;
  std::vector<int32_t> ids;
  BpeModel::Scratch scratch;
  PreTokenizer::Words words;

  Status added(std::string_view text, const std::vector<ByteRange>& untrusted) {
    if (t.raw_added_.empty()) return normalized(text, untrusted);
    for (const auto& piece : t.raw_added_.find({text, &untrusted, options.parse_special})) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        LARIAT_RETURN_IF_ERROR(normalized(text.substr(piece.range.begin, piece.range.size()),
                                          clip_ranges(untrusted, piece.range)));
      }
    }
    return Ok{};
  }

  Status normalized(std::string_view text, std::vector<ByteRange> untrusted) {
    std::string composed;
    if (t.nfc_) {
      composed = nfc(text, &untrusted);
      text = composed;
    }
    if (t.normalized_added_.empty()) return plain(text);
    for (const auto& piece : t.normalized_added_.find({text, &untrusted, options.parse_special})) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        LARIAT_RETURN_IF_ERROR(plain(text.substr(piece.range.begin, piece.range.size())));
      }
    }
    return Ok{};
  }

  Status plain(std::string_view text) {
    LARIAT_RETURN_IF_ERROR(t.pre_.split(text, words));
    for (const ByteRange& word : words.ranges) {
      t.bpe_->encode(words.text.substr(word.begin, word.size()), ids, scratch);
    }
    return Ok{};
  }
};

Result<std::unique_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& folder) {
  LARIAT_ASSIGN(const std::string json, read_file(folder / "tokenizer.json", kTokenizerBytesMax));
  LARIAT_ASSIGN(const std::string config_json, read_optional(folder / "tokenizer_config.json"));
  LARIAT_ASSIGN(const std::string generation_json, read_optional(folder / "generation_config.json"));
  LARIAT_ASSIGN(const std::string jinja, read_optional(folder / "chat_template.jinja"));
  auto config = parse_tokenizer_config(config_json, generation_json);
  if (!config.ok()) return config.error().in(folder.string());
  if (!jinja.empty()) config->chat_template = jinja;
  auto tokenizer = parse(json, *std::move(config));
  if (!tokenizer.ok()) return tokenizer.error().in((folder / "tokenizer.json").string());
  return tokenizer;
}

Status Tokenizer::resolve(TokenizerConfig config, std::optional<std::vector<int32_t>> template_prefix) {
  config_ = std::move(config);
  const auto id_of = [&](const std::string& token, std::string_view what) -> Result<std::optional<int32_t>> {
    if (token.empty()) return std::optional<int32_t>();
    auto id = token_id(token);
    if (!id)
      return make_error(Errc::kCorruptData, fmt::format("{} \"{}\" is not in the vocabulary", what, token));
    return id;
  };
  LARIAT_ASSIGN(bos_id_, id_of(config_.bos_token, "bos_token"));
  LARIAT_ASSIGN(const std::optional<int32_t> eos, id_of(config_.eos_token, "eos_token"));
  if (eos) eos_ids_.push_back(*eos);
  for (const int32_t id : config_.eos_ids) {
    if (std::find(eos_ids_.begin(), eos_ids_.end(), id) == eos_ids_.end()) eos_ids_.push_back(id);
  }
  if (template_prefix) prefix_ = *std::move(template_prefix);
  if (!bos_id_ && prefix_.size() == 1) bos_id_ = prefix_[0];
  if (config_.add_bos_token == false) prefix_.clear();
  if (config_.add_bos_token == true && prefix_.empty()) {
    if (!bos_id_) return make_error(Errc::kCorruptData, "add_bos_token is true and there is no bos_token");
    prefix_ = {*bos_id_};
  }
  return Ok{};
}

Status Tokenizer::check_fits(int64_t vocab) const {
  int32_t first = -1;
  int64_t beyond = 0;
  for (auto id = static_cast<int32_t>(std::min<int64_t>(vocab, vocab_size())); id < vocab_size(); ++id) {
    if (!tokens_.has(id)) continue;
    if (beyond++ == 0) first = id;
  }
  if (beyond == 0) return Ok{};
  std::string text = fmt::format("token \"{}\" has id {}, but the model's vocab_size is {}",
                                 printable(tokens_.written(first)), first, vocab);
  if (beyond > 1) text += fmt::format("; so it is with {} more tokens", beyond - 1);
  return make_error(Errc::kCorruptData, std::move(text));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  return encode_mixed(text, {}, options);
}

Result<std::vector<int32_t>> Tokenizer::encode_mixed(std::string_view text,
                                                     const std::vector<ByteRange>& untrusted,
                                                     EncodeOptions options) const {
  if (text.size() > kTextBytesMax) {
    return make_error(Errc::kInvalidArgument,
                      fmt::format("text of {} bytes; the limit is {}", text.size(), kTextBytesMax));
  }
  std::string repaired;
  if (!utf8_valid(text)) {
    // Offsets would move; rendered chats are always valid.
    LARIAT_CHECK(untrusted.empty(), "invalid UTF-8 in a text with untrusted ranges");
    repaired = utf8_sanitize(text);
    text = repaired;
  }
  Encoder encoder{*this, options, {}, {}, {}};
  encoder.ids.reserve(text.size() / 3 + 1);
  if (options.add_bos) encoder.ids = prefix_;
  LARIAT_RETURN_IF_ERROR(encoder.added(text, untrusted));
  return std::move(encoder.ids);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (skip_special && is_special(id)) continue;
    bytes += tokens_.bytes(id);
  }
  return utf8_valid(bytes) ? bytes : utf8_sanitize(bytes);
}

}  // namespace lariat
