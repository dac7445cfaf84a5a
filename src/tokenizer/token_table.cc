#include "tokenizer/token_table.h"

#include <fmt/core.h>

#include <bit>

#include "tokenizer/utf8.h"

namespace lariat {
namespace {

struct Alphabet {
  std::array<char32_t, 256> char_of;
  std::array<int16_t, 512> byte_of;

  Alphabet() : char_of{} {
    byte_of.fill(-1);
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const char32_t c = printable ? static_cast<char32_t>(b) : next++;
      char_of[static_cast<size_t>(b)] = c;
      byte_of[c] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::optional<std::string> byte_level_decode(std::string_view written) {
  const Alphabet& a = alphabet();
  std::string out;
  out.reserve(written.size());
  while (!written.empty()) {
    const Utf8Char c = utf8_next(written);
    if (!c.valid || c.code >= a.byte_of.size() || a.byte_of[c.code] < 0) return std::nullopt;
    out += static_cast<char>(static_cast<unsigned char>(a.byte_of[c.code]));
    written.remove_prefix(c.length);
  }
  return out;
}

std::string byte_level_char(unsigned char byte) {
  std::string out;
  utf8_append(out, alphabet().char_of[byte]);
  return out;
}

StringIndex::StringIndex(size_t count)
    : slots_(std::bit_ceil(std::max<size_t>(16, 2 * count + 2)), -1), mask_(slots_.size() - 1) {}

Status TokenTable::add(int64_t id, std::string_view written) {
  const auto fault = [&](std::string_view what) {
    return make_error(Errc::kCorruptData,
                      fmt::format("token \"{}\" (id {}) {}", written.substr(0, 60), id, what));
  };
  if (id < 0 || id > kIdMax) return fault(fmt::format("has an id outside 0..{}", kIdMax));
  if (written.empty()) return fault("is empty");
  if (written.size() > kTokenBytesMax) return fault(fmt::format("is longer than {} bytes", kTokenBytesMax));
  if (has(static_cast<int32_t>(id))) {
    return fault(fmt::format("has the id of \"{}\"", this->written(static_cast<int32_t>(id)).substr(0, 60)));
  }
  if (find(written)) return fault(fmt::format("is already there with id {}", *find(written)));
  const auto raw = byte_level_decode(written);
  if (arena_.size() + 2 * written.size() > UINT32_MAX) return fault("makes the vocabulary too large");
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
  Entry& e = entries_[static_cast<size_t>(id)];
  e.written_at = static_cast<uint32_t>(arena_.size());
  e.written_bytes = static_cast<uint32_t>(written.size());
  arena_ += written;
  e.byte_level = raw.has_value();
  // Plain ASCII is written as itself: one copy serves both.
  if (!raw || *raw == written) {
    e.raw_at = e.written_at;
    e.raw_bytes = e.written_bytes;
  } else {
    e.raw_at = static_cast<uint32_t>(arena_.size());
    e.raw_bytes = static_cast<uint32_t>(raw->size());
    arena_ += *raw;
  }
  index_.insert(this->written(static_cast<int32_t>(id)), static_cast<int32_t>(id),
                [this](int32_t i) { return this->written(i); });
  return Ok{};
}

std::string_view TokenTable::written(int32_t id) const {
  if (!has(id)) return {};
  const Entry& e = entries_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(e.written_at, e.written_bytes);
}

std::string_view TokenTable::bytes(int32_t id) const {
  if (!has(id)) return {};
  const Entry& e = entries_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(e.raw_at, e.raw_bytes);
}

std::optional<int32_t> TokenTable::find(std::string_view written) const {
  return index_.find(written, [this](int32_t i) { return this->written(i); });
}

}  // namespace lariat
