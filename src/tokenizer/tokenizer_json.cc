// tokenizer.json to a Tokenizer. The file is hostile until read: every size is capped, everything that is set
// and not implemented is refused by name.
#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>

#include "base/json.h"
#include "base/problems.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace lariat {

namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kJsonDepthMax = 32;
constexpr size_t kMergesMax = 8u << 20;
constexpr size_t kAddedMax = 64u << 10;
constexpr size_t kAddedBytesMax = 1024;
constexpr int kSequenceDepthMax = 4;
constexpr size_t kStepsMax = 32;

Error corrupt(std::string message) {
  return make_error(Errc::kCorruptData, std::move(message));
}
Error unsupported(std::string message) {
  return make_error(Errc::kUnsupported, std::move(message));
}

bool absent(simdjson::simdjson_result<element> r) {
  return r.error() || r.value_unsafe().is_null();
}

simdjson::simdjson_result<element> present(element e) {
  return simdjson::simdjson_result<element>(element(e));
}

Result<std::string_view> text_of(const object& o, const char* key) {
  std::string_view text;
  if (o[key].get(text)) return corrupt(fmt::format("\"{}\" is missing or no string", key));
  return text;
}

// A flag that may be absent.
Result<bool> flag_of(const object& o, const char* key, bool fallback) {
  if (absent(o[key])) return fallback;
  bool value = false;
  if (o[key].get(value)) return corrupt(fmt::format("\"{}\" is no boolean", key));
  return value;
}

Result<array> array_of(const object& o, const char* key) {
  array value;
  if (o[key].get(value)) return corrupt(fmt::format("\"{}\" is missing or no array", key));
  return value;
}

// null, "" and absent mean unset.
Status must_be_unset(const object& o, const char* key) {
  if (absent(o[key])) return Ok{};
  std::string_view text;
  if (!o[key].get(text) && text.empty()) return Ok{};
  double number = 1;
  if (!o[key].get(number) && number == 0) return Ok{};
  return unsupported(fmt::format("\"{}\" is set, which is not implemented", key));
}

}  // namespace

class TokenizerJson {
 public:
  Result<std::unique_ptr<const Tokenizer>> run(std::string_view json, TokenizerConfig config) {
    simdjson::dom::parser parser;
    if (parser.allocate(json.size() + 1, kJsonDepthMax)) return corrupt("too large to parse");
    element root;
    if (const auto code = parser.parse(json.data(), json.size()).get(root)) {
      // simdjson, which reads the text in a tenth of the time, does not say where it stops being JSON.
      const std::string place = code == simdjson::DEPTH_ERROR ? std::string() : json_fault_place(json);
      return corrupt(fmt::format("invalid JSON{}: {}", place, simdjson::error_message(code)));
    }
    object top;
    if (root.get(top)) return corrupt("the top level is no object");
    // "truncation" and "padding" shape batches for training; a server's prompt is never cut or filled.
    model(top);
    note("added_tokens", added_tokens(top));
    note("normalizer", normalizer(top["normalizer"], 0));
    pre_tokenizers(top);
    note("post_processor", post_processor(top["post_processor"], 0));
    note("decoder", decoder(top));
    if (!problems_.empty()) return all_problems();
    add_matchers();
    t_->bpe_ = std::make_unique<const BpeModel>(t_->tokens_, merges_, t_->special_, options_);
    LARIAT_RETURN_IF_ERROR(t_->resolve(std::move(config), std::move(prefix_)));
    return std::unique_ptr<const Tokenizer>(std::move(t_));
  }

 private:
  static Status at(std::string_view where, Status status) {
    if (status.ok()) return status;
    return status.error().in(where);
  }

  // One fault among those that are reported together.
  void note(std::string_view where, const Status& status) {
    if (status.ok()) return;
    problems_.add(fmt::format("{}: {}", where, status.error().message));
    corrupt_ = corrupt_ || status.error().code == Errc::kCorruptData;
  }
  Error all_problems() const {
    Error error = problems_.error(corrupt_ ? Errc::kCorruptData : Errc::kUnsupported, "");
    error.message.erase(0, 2);  // the ": " after no place
    return error;
  }

  void model(const object& top) {
    object o;
    if (top["model"].get(o)) return note("model", corrupt("missing or no object"));
    const Status type = model_type(o);
    note("model", type);
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      note("model", must_be_unset(o, key));
    }
    note("model", switches(o));
    if (!type.ok()) return;  // its vocabulary has another form
    const Status vocab = vocabulary(o);
    note("model", vocab);
    vocabulary_known_ = vocab.ok();
    if (!vocabulary_known_) return;
    note("model", unknown_token(o));
    note("model: merges", merges(o));
  }

  static Status model_type(const object& o) {
    // Old files leave the type out; what has merges is BPE.
    if (absent(o["type"])) return Ok{};
    LARIAT_ASSIGN(const std::string_view type, text_of(o, "type"));
    if (type != "BPE") return unsupported(fmt::format("type \"{}\": only BPE is implemented", type));
    return Ok{};
  }

  Status switches(const object& o) {
    LARIAT_ASSIGN(options_.ignore_merges, flag_of(o, "ignore_merges", false));
    LARIAT_ASSIGN(options_.fuse_unk, flag_of(o, "fuse_unk", false));
    LARIAT_ASSIGN(const bool byte_fallback, flag_of(o, "byte_fallback", false));
    if (byte_fallback) return unsupported("\"byte_fallback\" is set, which is not implemented");
    return Ok{};
  }

  Status vocabulary(const object& o) {
    object vocab;
    if (o["vocab"].get(vocab)) return corrupt("\"vocab\" is missing or no object");
    for (const auto& [token, value] : vocab) {
      int64_t id = 0;
      if (value.get(id))
        return corrupt(fmt::format("vocab: id of \"{}\" is no integer", token.substr(0, 60)));
      LARIAT_RETURN_IF_ERROR(at("vocab", t_->tokens_.add(id, token)));
    }
    return Ok{};
  }

  Status unknown_token(const object& o) {
    if (absent(o["unk_token"])) return Ok{};
    LARIAT_ASSIGN(const std::string_view unk, text_of(o, "unk_token"));
    if (unk.empty()) return Ok{};
    options_.unk_id = t_->tokens_.find(unk);
    if (!options_.unk_id)
      return corrupt(fmt::format("unk_token \"{}\" is not in the vocabulary", unk.substr(0, 60)));
    return Ok{};
  }

  Status merges(const object& o) {
    LARIAT_ASSIGN(const array list, array_of(o, "merges"));
    std::string joined;
    for (const element& item : list) {
      if (merges_.size() == kMergesMax) return corrupt(fmt::format("more than {} entries", kMergesMax));
      const auto fault = [&](std::string_view what) {
        return corrupt(fmt::format("entry {} {}", merges_.size(), what));
      };
      std::string_view left, right, text;
      array pair;
      if (!item.get(text)) {
        const size_t space = text.find(' ');
        if (space == text.npos || text.find(' ', space + 1) != text.npos) return fault("is not two words");
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else if (item.get(pair) || pair.size() != 2 || pair.at(0).get(left) || pair.at(1).get(right)) {
        return fault("is neither a string nor a pair of strings");
      }
      joined.assign(left).append(right);
      const auto l = t_->tokens_.find(left), r = t_->tokens_.find(right), m = t_->tokens_.find(joined);
      if (!l || !r || !m)
        return fault(
            fmt::format("(\"{}\", \"{}\") is not made of tokens", left.substr(0, 60), right.substr(0, 60)));
      merges_.push_back({*l, *r, *m});
    }
    return Ok{};
  }

  Status added_tokens(const object& top) {
    if (!absent(top["added_tokens"])) {
      LARIAT_ASSIGN(const array list, array_of(top, "added_tokens"));
      for (const element& item : list) {
        object o;
        if (item.get(o)) return corrupt(fmt::format("entry {} is no object", added_.size()));
        LARIAT_RETURN_IF_ERROR(at(fmt::format("entry {}", added_.size()), added_token(o)));
      }
    }
    t_->special_.assign(static_cast<size_t>(t_->tokens_.size()), false);
    for (const AddedToken& token : added_) {
      if (token.special) t_->special_[static_cast<size_t>(token.id)] = true;
    }
    return Ok{};
  }

  Status added_token(const object& o) {
    if (added_.size() == kAddedMax) return corrupt(fmt::format("more than {} entries", kAddedMax));
    AddedToken token;
    int64_t id = 0;
    if (o["id"].get(id)) return corrupt("\"id\" is missing or no integer");
    LARIAT_ASSIGN(const std::string_view content, text_of(o, "content"));
    if (content.size() > kAddedBytesMax)
      return corrupt(fmt::format("is longer than {} bytes", kAddedBytesMax));
    LARIAT_ASSIGN(token.special, flag_of(o, "special", false));
    LARIAT_ASSIGN(token.normalized, flag_of(o, "normalized", !token.special));
    LARIAT_ASSIGN(token.single_word, flag_of(o, "single_word", false));
    LARIAT_ASSIGN(token.lstrip, flag_of(o, "lstrip", false));
    LARIAT_ASSIGN(token.rstrip, flag_of(o, "rstrip", false));
    const auto known = t_->tokens_.find(content);
    if (!known) LARIAT_RETURN_IF_ERROR(t_->tokens_.add(id, content));
    if (known && *known != id) {
      return corrupt(
          fmt::format("\"{}\" has id {} here and {} in the vocabulary", content.substr(0, 60), id, *known));
    }
    token.id = static_cast<int32_t>(id);
    token.content = content;
    added_.push_back(std::move(token));
    return Ok{};
  }

  void add_matchers() {
    for (const AddedToken& token : added_) {
      if (token.normalized) {
        t_->normalized_added_.add(token, t_->nfc_ ? nfc(token.content) : token.content);
      } else {
        t_->raw_added_.add(token, token.content);
      }
    }
  }

  Status normalizer(simdjson::simdjson_result<element> value, int depth) {
    if (absent(value)) return Ok{};
    object o;
    if (value.get(o)) return corrupt("no object");
    LARIAT_ASSIGN(const std::string_view type, text_of(o, "type"));
    if (type == "NFC") {
      t_->nfc_ = true;
      return Ok{};
    }
    if (type != "Sequence") return unsupported(fmt::format("type \"{}\" is not implemented", type));
    if (depth == kSequenceDepthMax) return unsupported("sequences are nested too deep");
    LARIAT_ASSIGN(const array list, array_of(o, "normalizers"));
    for (const element& item : list) note("normalizer", normalizer(present(item), depth + 1));
    return Ok{};
  }

  void pre_tokenizers(const object& top) {
    const size_t before = problems_.count();
    note("pre_tokenizer", pre_tokenizer(top["pre_tokenizer"], 0));
    if (byte_level_ || problems_.count() > before) return;
    note("pre_tokenizer", unsupported("there is no ByteLevel: only byte-level BPE is implemented"));
  }

  Status pre_tokenizer(simdjson::simdjson_result<element> value, int depth) {
    if (absent(value)) return Ok{};
    object o;
    if (value.get(o)) return corrupt("no object");
    LARIAT_ASSIGN(const std::string_view type, text_of(o, "type"));
    // After ByteLevel the text is no text any more; a later step would see its alphabet.
    if (byte_level_) return unsupported(fmt::format("\"{}\" stands after ByteLevel", type));
    if (++steps_ > kStepsMax) return unsupported(fmt::format("more than {} steps", kStepsMax));
    if (type == "Sequence") {
      if (depth == kSequenceDepthMax) return unsupported("sequences are nested too deep");
      LARIAT_ASSIGN(const array list, array_of(o, "pretokenizers"));
      for (const element& item : list) note("pre_tokenizer", pre_tokenizer(present(item), depth + 1));
      return Ok{};
    }
    if (type == "Split") return at("Split", split(o));
    if (type == "Digits") {
      LARIAT_ASSIGN(const bool single, flag_of(o, "individual_digits", false));
      return add_split(SplitRegex::compile(single ? "\\p{N}" : "\\p{N}+"), SplitBehavior::kIsolated, false);
    }
    if (type != "ByteLevel") return unsupported(fmt::format("type \"{}\" is not implemented", type));
    byte_level_ = true;
    LARIAT_ASSIGN(const bool prefix_space, flag_of(o, "add_prefix_space", true));
    LARIAT_ASSIGN(const bool use_regex, flag_of(o, "use_regex", true));
    if (prefix_space) t_->pre_.add(PrefixSpaceStep{});
    if (!use_regex) return Ok{};
    return add_split(SplitRegex::compile(PreTokenizer::kGpt2Pattern), SplitBehavior::kIsolated, false);
  }

  Status split(const object& o) {
    static constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
        {"Removed", SplitBehavior::kRemoved},
        {"Isolated", SplitBehavior::kIsolated},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous}};
    LARIAT_ASSIGN(const std::string_view name, text_of(o, "behavior"));
    const auto* behavior = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                        [&](const auto& b) { return b.first == name; });
    if (behavior == std::end(kBehaviors))
      return unsupported(fmt::format("behavior \"{}\" is not implemented", name));
    LARIAT_ASSIGN(const bool invert, flag_of(o, "invert", false));
    object pattern;
    if (o["pattern"].get(pattern)) return corrupt("\"pattern\" is missing or no object");
    if (!absent(pattern["String"])) {
      LARIAT_ASSIGN(const std::string_view literal, text_of(pattern, "String"));
      return add_split(SplitRegex::literal(literal), behavior->second, invert);
    }
    LARIAT_ASSIGN(const std::string_view regex, text_of(pattern, "Regex"));
    return add_split(SplitRegex::compile(regex), behavior->second, invert);
  }

  Status add_split(Result<SplitRegex> regex, SplitBehavior behavior, bool invert) {
    if (!regex.ok()) return regex.error();
    t_->pre_.add(SplitStep{*std::move(regex), behavior, invert});
    return Ok{};
  }

  // Only what stands in front of a single text matters; ByteLevel here only moves offsets.
  Status post_processor(simdjson::simdjson_result<element> value, int depth) {
    if (absent(value)) return Ok{};
    object o;
    if (value.get(o)) return corrupt("no object");
    LARIAT_ASSIGN(const std::string_view type, text_of(o, "type"));
    if (type == "ByteLevel") return Ok{};
    if (type == "TemplateProcessing") return template_processing(o);
    if (type != "Sequence") return unsupported(fmt::format("type \"{}\" is not implemented", type));
    if (depth == kSequenceDepthMax) return unsupported("sequences are nested too deep");
    LARIAT_ASSIGN(const array list, array_of(o, "processors"));
    for (const element& item : list) note("post_processor", post_processor(present(item), depth + 1));
    return Ok{};
  }

  Status template_processing(const object& o) {
    if (prefix_) return unsupported("more than one TemplateProcessing");
    LARIAT_ASSIGN(const array single, array_of(o, "single"));
    std::vector<int32_t> prefix;
    bool text_seen = false;
    for (const element& item : single) {
      object entry, token;
      if (item.get(entry)) return corrupt("an entry of \"single\" is no object");
      if (entry["SpecialToken"].get(token)) {
        if (text_seen || entry["Sequence"].error())
          return unsupported("\"single\" holds other than tokens and one text");
        text_seen = true;
        continue;
      }
      if (text_seen) return unsupported("tokens after the text are not implemented");
      LARIAT_ASSIGN(const std::string_view name, text_of(token, "id"));
      if (vocabulary_known_) LARIAT_RETURN_IF_ERROR(template_token(o, name, prefix));
    }
    if (!text_seen) return corrupt("\"single\" holds no text");
    if (prefix.size() > 1) return unsupported("more than one token before the text");
    prefix_ = std::move(prefix);
    return Ok{};
  }

  Status template_token(const object& o, std::string_view name, std::vector<int32_t>& prefix) {
    object tokens, token;
    array ids;
    if (o["special_tokens"].get(tokens) || tokens[name].get(token) || token["ids"].get(ids)) {
      return corrupt(fmt::format("\"{}\" is not in \"special_tokens\"", name.substr(0, 60)));
    }
    for (const element& item : ids) {
      int64_t id = 0;
      if (item.get(id) || id < 0 || id > TokenTable::kIdMax || !t_->tokens_.has(static_cast<int32_t>(id))) {
        return corrupt(fmt::format("an id of \"{}\" is no token", name.substr(0, 60)));
      }
      prefix.push_back(static_cast<int32_t>(id));
    }
    return Ok{};
  }

  Status decoder(const object& top) {
    object o;
    if (top["decoder"].get(o)) return unsupported("missing: only ByteLevel is implemented");
    LARIAT_ASSIGN(const std::string_view type, text_of(o, "type"));
    if (type != "ByteLevel")
      return unsupported(fmt::format("type \"{}\": only ByteLevel is implemented", type));
    return Ok{};
  }

  std::unique_ptr<Tokenizer> t_{new Tokenizer()};
  BpeModel::Options options_;
  std::vector<BpeModel::Merge> merges_;
  std::vector<AddedToken> added_;
  std::optional<std::vector<int32_t>> prefix_;
  bool byte_level_ = false;
  bool vocabulary_known_ = false;
  size_t steps_ = 0;
  Problems problems_;
  bool corrupt_ = false;
};

Result<std::unique_ptr<const Tokenizer>> Tokenizer::parse(std::string_view tokenizer_json,
                                                          TokenizerConfig config) {
  if (!utf8_valid(tokenizer_json)) {
    return corrupt(fmt::format("invalid UTF-8 at byte {}", utf8_valid_bytes(tokenizer_json) + 1));
  }
  return TokenizerJson().run(tokenizer_json, std::move(config));
}

}  // namespace lariat
