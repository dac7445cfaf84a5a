#include "tokenizer/added_tokens.h"

#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace lariat {
namespace {

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word_char(utf8_next(text).code);
}

size_t last_char(std::string_view text) {
  size_t at = text.size();
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && starts_with_word(text.substr(last_char(text)));
}

// Where the white space at the end of `text` begins, not looking before `floor`.
size_t trailing_space(std::string_view text, size_t floor) {
  while (text.size() > floor) {
    const size_t at = last_char(text);
    if (!is_space(utf8_next(text.substr(at)).code)) break;
    text = text.substr(0, at);
  }
  return std::max(text.size(), floor);
}

size_t leading_space(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    const Utf8Char c = utf8_next(text.substr(n));
    if (!is_space(c.code)) break;
    n += c.length;
  }
  return n;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher() : nodes_(1) {}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view content) {
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    auto& children = nodes_[node].children;
    const auto it =
        std::find_if(children.begin(), children.end(), [&](const auto& e) { return e.first == byte; });
    if (it != children.end()) {
      node = it->second;
    } else {
      const auto fresh = static_cast<uint32_t>(nodes_.size());
      children.emplace_back(byte, fresh);
      nodes_.emplace_back();
      node = fresh;
    }
  }
  if (nodes_[node].token >= 0) return;  // two that normalize to the same text: the first counts
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  first_bytes_[static_cast<unsigned char>(content[0])] = true;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(const Text& text, size_t at,
                                                       size_t trusted_end) const {
  Match best{0, at};
  uint32_t node = 0;
  for (size_t i = at; i < text.utf8.size();) {
    const auto byte = static_cast<unsigned char>(text.utf8[i]);
    const auto& children = nodes_[node].children;
    const auto it =
        std::find_if(children.begin(), children.end(), [&](const auto& e) { return e.first == byte; });
    if (it == children.end()) break;
    node = it->second;
    ++i;
    if (nodes_[node].token < 0) continue;
    const auto token = static_cast<size_t>(nodes_[node].token);
    if (!tokens_[token].special || i <= trusted_end) best = {token, i};
  }
  return best;
}

std::vector<AddedTokenMatcher::Piece> AddedTokenMatcher::find(const Text& text) const {
  std::vector<Piece> out;
  size_t done = 0;  // end of the last token
  size_t untrusted_at = 0;
  const std::vector<ByteRange> none;
  const std::vector<ByteRange>& untrusted = text.untrusted ? *text.untrusted : none;
  for (size_t at = 0; at < text.utf8.size();) {
    if (!first_bytes_[static_cast<unsigned char>(text.utf8[at])]) {
      ++at;
      continue;
    }
    while (untrusted_at < untrusted.size() && untrusted[untrusted_at].end <= at) ++untrusted_at;
    const size_t trusted_end =
        untrusted_at < untrusted.size() ? untrusted[untrusted_at].begin : text.utf8.size();
    const Match match = longest_at(text, at, trusted_end);
    if (match.end == at) {
      ++at;
      continue;
    }
    size_t begin = at, end = match.end;
    at = match.end;  // where the search goes on, whatever becomes of this match
    const AddedToken& token = tokens_[match.token];
    if (token.special && !text.parse_special) continue;
    if (token.single_word &&
        (ends_with_word(text.utf8.substr(0, begin)) || starts_with_word(text.utf8.substr(end)))) {
      continue;
    }
    begin = std::max(begin, done);  // part of it may have gone with the white space the last token took
    end = std::max(end, done);
    if (token.lstrip) begin = trailing_space(text.utf8.substr(0, begin), done);
    if (token.rstrip) end += leading_space(text.utf8.substr(end));
    if (done < begin) out.push_back({{done, begin}, -1});
    out.push_back({{begin, end}, token.id});
    done = end;
  }
  if (done < text.utf8.size()) out.push_back({{done, text.utf8.size()}, -1});
  return out;
}

}  // namespace lariat
