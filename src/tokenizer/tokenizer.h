// Text to token ids and back, as tokenizer.json says: byte-level BPE.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_table.h"

namespace lariat {

struct EncodeOptions {
  bool add_bos = true;        // put BOS in front if the tokenizer adds one (adds_bos())
  bool parse_special = true;  // find special tokens in the text; other added tokens are always found
};

// The fields of tokenizer_config.json and generation_config.json that matter here.
struct TokenizerConfig {
  std::string bos_token, eos_token;      // written forms, empty if there is none
  std::optional<bool> add_bos_token;     // wins over tokenizer.json's post_processor
  std::vector<int32_t> eos_ids;          // generation_config's eos_token_id
  std::string chat_template;             // empty: the model has none
  std::string chat_template_with_tools;  // the template named "tool_use", where there are several
};

// config_json: text of tokenizer_config.json, generation_json: of generation_config.json; either may be
// empty.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view config_json,
                                               std::string_view generation_json);

// Immutable after creation; all const functions may run concurrently.
class Tokenizer {
 public:
  // Reads tokenizer.json (required), tokenizer_config.json, generation_config.json and chat_template.jinja
  // (which wins over the config's template) from a model folder. kNotFound without tokenizer.json;
  // kCorruptData for what breaks the format; kUnsupported, by name, for what we do not implement; all that is
  // found in tokenizer.json in one error.
  static Result<std::unique_ptr<const Tokenizer>> load(const std::filesystem::path& folder);
  static Result<std::unique_ptr<const Tokenizer>> parse(std::string_view tokenizer_json,
                                                        TokenizerConfig config = {});

  // Ids of a text. Invalid UTF-8 counts as U+FFFD, one for each maximal subpart. Empty text has no ids beside
  // BOS. kInvalidArgument for more than kTextBytesMax, kResourceExhausted if a split pattern backtracks too
  // much. Deterministic, O(n log n) in the longest word, stack use independent of the text.
  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;

  // The same for a text of which `untrusted` ranges (sorted, disjoint) came from a user: no special token is
  // found that touches one of them. Words and merges cross the borders as on the plain text.
  Result<std::vector<int32_t>> encode_mixed(std::string_view text, const std::vector<ByteRange>& untrusted,
                                            EncodeOptions options = {}) const;

  // Text of ids: an id without a token gives nothing, invalid UTF-8 one U+FFFD for each maximal subpart.
  // clean_up_tokenization_spaces is not applied, so decode(encode(s)) == s.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  // Raw bytes of one token (may be part of a character; empty for an id without a token).
  std::string_view token_bytes(int32_t id) const { return tokens_.bytes(id); }
  // By written form: "<|im_end|>", "Ġthe".
  std::optional<int32_t> token_id(std::string_view written) const { return tokens_.find(written); }
  bool is_special(int32_t id) const {
    return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
  }
  // One past the largest id; the model's vocabulary may be larger.
  int32_t vocab_size() const { return tokens_.size(); }
  // kCorruptData naming the first token whose id a model of `vocab` tokens does not have.
  Status check_fits(int64_t vocab) const;

  // Whether encode() with add_bos puts BOS in front.
  bool adds_bos() const { return !prefix_.empty(); }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  // tokenizer_config's eos_token first, then generation_config's; all of them end a generation.
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  const TokenizerConfig& config() const { return config_; }

  static constexpr size_t kTextBytesMax = 1u << 30;

 private:
  friend class TokenizerJson;
  Tokenizer() = default;
  Status resolve(TokenizerConfig config, std::optional<std::vector<int32_t>> template_prefix);
  struct Encoder;

  TokenTable tokens_;
  std::vector<bool> special_;  // by id
  AddedTokenMatcher raw_added_, normalized_added_;
  bool nfc_ = false;
  PreTokenizer pre_;
  std::unique_ptr<const BpeModel> bpe_;
  std::vector<int32_t> prefix_;  // what stands in front of every text: BOS, or nothing
  std::optional<int32_t> bos_id_;
  std::vector<int32_t> eos_ids_;
  TokenizerConfig config_;
};

}  // namespace lariat
