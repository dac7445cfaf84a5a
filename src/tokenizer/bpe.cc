#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>

namespace lariat {
namespace {

// Below this length scanning for the best pair again after each merge is faster than a heap.
constexpr size_t kShortWord = 48;

constexpr uint32_t kNoRank = UINT32_MAX;

}  // namespace

BpeModel::BpeModel(const TokenTable& tokens, const std::vector<Merge>& merges,
                   const std::vector<bool>& special, Options options)
    : tokens_(tokens), options_(options) {
  for (int b = 0; b < 256; ++b) {
    byte_ids_[static_cast<size_t>(b)] =
        tokens.find(byte_level_char(static_cast<unsigned char>(b))).value_or(-1);
  }
  rules_.resize(std::bit_ceil(std::max<size_t>(16, 2 * merges.size() + 2)));
  mask_ = rules_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    size_t slot = hash(pair) & mask_;
    while (rules_[slot].pair != kNoPair && rules_[slot].pair != pair) slot = (slot + 1) & mask_;
    rules_[slot] = {pair, static_cast<uint32_t>(rank), merges[rank].merged};
  }
  if (!options_.ignore_merges) return;
  const auto bytes_of = [&](int32_t id) { return tokens_.bytes(id); };
  for (int32_t id = 0; id < tokens.size(); ++id) {
    if (tokens.is_byte_level(id) && !special[static_cast<size_t>(id)]) {
      whole_words_.insert(tokens.bytes(id), id, bytes_of);
    }
  }
}

const BpeModel::Rule* BpeModel::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  for (size_t slot = hash(pair) & mask_; rules_[slot].pair != kNoPair; slot = (slot + 1) & mask_) {
    if (rules_[slot].pair == pair) return &rules_[slot];
  }
  return nullptr;
}

void BpeModel::encode(std::string_view word, std::vector<int32_t>& out, Scratch& s) const {
  if (options_.ignore_merges) {
    const auto id = whole_words_.find(word, [&](int32_t i) { return tokens_.bytes(i); });
    if (id) {
      out.push_back(*id);
      return;
    }
  }
  s.ids.clear();
  bool after_unk = false;
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id >= 0) {
      s.ids.push_back(id);
    } else if (options_.unk_id && !(after_unk && options_.fuse_unk)) {
      s.ids.push_back(*options_.unk_id);
    }
    after_unk = id < 0;
  }
  if (s.ids.size() <= kShortWord) {
    merge_short(s);
  } else {
    merge_long(s);
  }
  out.insert(out.end(), s.ids.begin(), s.ids.end());
}

void BpeModel::merge_short(Scratch& s) const {
  // rank[i], merged[i]: of the pair (ids[i], ids[i+1]).
  std::array<uint32_t, kShortWord> rank;
  std::array<int32_t, kShortWord> merged;
  size_t n = s.ids.size();
  const auto look_up = [&](size_t i) {
    const Rule* rule = i + 1 < n ? find(s.ids[i], s.ids[i + 1]) : nullptr;
    rank[i] = rule ? rule->rank : kNoRank;
    merged[i] = rule ? rule->merged : 0;
    ++s.merge_steps;
  };
  for (size_t i = 0; i < n; ++i) look_up(i);
  while (n > 1) {
    const size_t best = static_cast<size_t>(
        std::min_element(rank.begin(), rank.begin() + static_cast<ptrdiff_t>(n - 1)) - rank.begin());
    if (rank[best] == kNoRank) break;
    s.ids[best] = merged[best];
    for (size_t i = best + 1; i + 1 < n; ++i) {
      s.ids[i] = s.ids[i + 1];
      rank[i] = rank[i + 1];
      merged[i] = merged[i + 1];
    }
    --n;
    if (best > 0) look_up(best - 1);
    look_up(best);
  }
  s.ids.resize(n);
}

// A heap of (rank, position) over a linked list. An entry is stale when its pair has changed since: the pair
// at that position then has another rank, because a position's text only grows and a rank names one pair.
void BpeModel::merge_long(Scratch& s) const {
  const auto n = static_cast<int32_t>(s.ids.size());
  s.next.resize(s.ids.size());
  s.previous.resize(s.ids.size());
  s.heap.clear();
  const auto at = [](int32_t i) { return static_cast<size_t>(i); };
  const auto rule_at = [&](int32_t i) {
    const int32_t right = s.next[at(i)];
    ++s.merge_steps;
    return right < 0 ? nullptr : find(s.ids[at(i)], s.ids[at(right)]);
  };
  const auto entry = [](const Rule& rule, int32_t i) {
    return static_cast<uint64_t>(rule.rank) << 32 | static_cast<uint32_t>(i);
  };
  for (int32_t i = 0; i < n; ++i) {
    s.next[at(i)] = i + 1 < n ? i + 1 : -1;
    s.previous[at(i)] = i - 1;
  }
  for (int32_t i = 0; i < n; ++i) {
    if (const Rule* rule = rule_at(i)) s.heap.push_back(entry(*rule, i));
  }
  std::make_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    const uint64_t top = s.heap.back();
    s.heap.pop_back();
    const auto i = static_cast<int32_t>(top & UINT32_MAX);
    if (s.ids[at(i)] < 0) continue;  // swallowed by its left neighbour
    const Rule* rule = rule_at(i);
    if (!rule || entry(*rule, i) != top) continue;
    const int32_t right = s.next[at(i)], after = s.next[at(right)];
    s.ids[at(i)] = rule->merged;
    s.ids[at(right)] = -1;
    s.next[at(i)] = after;
    if (after >= 0) s.previous[at(after)] = i;
    for (const int32_t changed : {s.previous[at(i)], i}) {
      const Rule* fresh = changed < 0 ? nullptr : rule_at(changed);
      if (!fresh) continue;
      s.heap.push_back(entry(*fresh, changed));
      std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    }
  }
  s.ids.erase(std::remove(s.ids.begin(), s.ids.end(), -1), s.ids.end());
}

}  // namespace lariat
