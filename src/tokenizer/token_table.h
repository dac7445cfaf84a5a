// The vocabulary: id -> written form and raw bytes, written form -> id.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lariat {

// GPT-2's byte alphabet: every byte has a printable character, vocabularies are written in these.
// nullopt if `written` (valid UTF-8) holds a character outside it.
std::optional<std::string> byte_level_decode(std::string_view written);
// The character of one byte, as UTF-8.
std::string byte_level_char(unsigned char byte);

// Open-addressing index of strings that live elsewhere; key_of(id) gives the string of an id.
class StringIndex {
 public:
  // Room for `count` strings.
  explicit StringIndex(size_t count = 0);
  template <typename KeyOf>
  std::optional<int32_t> find(std::string_view key, KeyOf key_of) const {
    for (size_t slot = hash(key) & mask_; slots_[slot] >= 0; slot = (slot + 1) & mask_) {
      if (key_of(slots_[slot]) == key) return slots_[slot];
    }
    return std::nullopt;
  }
  // False if an equal string is in already.
  template <typename KeyOf>
  bool insert(std::string_view key, int32_t id, KeyOf key_of) {
    if (2 * (size_ + 1) > slots_.size()) grow(key_of);
    size_t slot = hash(key) & mask_;
    for (; slots_[slot] >= 0; slot = (slot + 1) & mask_) {
      if (key_of(slots_[slot]) == key) return false;
    }
    slots_[slot] = id;
    ++size_;
    return true;
  }

 private:
  static size_t hash(std::string_view key) { return std::hash<std::string_view>{}(key); }
  template <typename KeyOf>
  void grow(KeyOf key_of) {
    StringIndex bigger(2 * (size_ + 1));
    for (const int32_t id : slots_) {
      if (id >= 0) bigger.insert(key_of(id), id, key_of);
    }
    *this = std::move(bigger);
  }

  std::vector<int32_t> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

class TokenTable {
 public:
  static constexpr int32_t kIdMax = (1 << 22) - 1;  // ten times the largest vocabulary known
  static constexpr size_t kTokenBytesMax = 64 << 10;

  // kCorruptData: id out of range or taken, text empty, too long or already in.
  Status add(int64_t id, std::string_view written);

  // One past the largest id.
  int32_t size() const { return static_cast<int32_t>(entries_.size()); }
  bool has(int32_t id) const {
    return id >= 0 && id < size() && entries_[static_cast<size_t>(id)].written_bytes > 0;
  }
  // Empty for an id without a token.
  std::string_view written(int32_t id) const;
  // What the token stands for in the output: bytes through the alphabet, or the written form itself where
  // that is not written in the alphabet. May be part of a character.
  std::string_view bytes(int32_t id) const;
  // Whether bytes() came through the alphabet, so that merging bytes can reach this token.
  bool is_byte_level(int32_t id) const { return has(id) && entries_[static_cast<size_t>(id)].byte_level; }
  std::optional<int32_t> find(std::string_view written) const;

 private:
  struct Entry {
    uint32_t written_at = 0, written_bytes = 0;
    uint32_t raw_at = 0, raw_bytes = 0;
    bool byte_level = false;
  };
  std::string arena_;
  std::vector<Entry> entries_;
  StringIndex index_;
};

}  // namespace lariat
