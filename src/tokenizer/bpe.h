// Byte-pair merging of one word: raw bytes to token ids.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/token_table.h"

namespace lariat {

class BpeModel {
 public:
  struct Options {
    bool ignore_merges = false;     // a word that is a token as a whole is that token, without merging
    std::optional<int32_t> unk_id;  // stands for a byte the vocabulary lacks; absent: such bytes vanish
    bool fuse_unk = false;          // neighbouring unknown bytes share one unk
  };

  // A pair of neighbours and what they become; of two rules for one pair the later counts.
  struct Merge {
    int32_t left, right, merged;
  };

  // Merges by rising rank. `tokens` must stay as it is and outlive the model. Special tokens (true in
  // `special`, by id) are never found by the ignore_merges look-up: they are no text.
  BpeModel(const TokenTable& tokens, const std::vector<Merge>& merges, const std::vector<bool>& special,
           Options options);

  // Working memory of one caller, kept between words; merge_steps counts pair look-ups and heap moves, for
  // tests.
  struct Scratch {
    std::vector<int32_t> ids;
    std::vector<int32_t> next, previous;
    std::vector<uint64_t> heap;
    uint64_t merge_steps = 0;
  };

  // Appends the ids of `word`. Repeatedly merges the pair of lowest rank, the leftmost first, as the
  // reference does; O(n log n) for n bytes. Words are shorter than 2^31 bytes.
  void encode(std::string_view word, std::vector<int32_t>& out, Scratch& scratch) const;

 private:
  struct Rule {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t merged = 0;
  };
  static constexpr uint64_t kNoPair = ~0ull;
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static size_t hash(uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(pair ^ (pair >> 32));
  }
  const Rule* find(int32_t left, int32_t right) const;
  void merge_short(Scratch& s) const;
  void merge_long(Scratch& s) const;

  const TokenTable& tokens_;
  Options options_;
  std::array<int32_t, 256> byte_ids_;  // -1: no such token
  std::vector<Rule> rules_;            // open addressing by pair
  size_t mask_ = 0;
  StringIndex whole_words_;  // by raw bytes, with ignore_merges only
};

}  // namespace lariat
