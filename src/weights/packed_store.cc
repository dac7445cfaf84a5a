#include "weights/packed_store.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/problems.h"

namespace lariat {
namespace {

constexpr size_t kGrowBytes = size_t{64} << 20;
constexpr size_t kBytesMax = size_t{1} << 46;  // keeps every sum far from overflow

size_t aligned(size_t bytes) {
  return (bytes + Buffer::kAlign - 1) / Buffer::kAlign * Buffer::kAlign;
}

Error bad_table(const std::string& what) {
  return make_error(Errc::kCorruptData, "packed weights: " + what);
}

// A non-negative integer up to kBytesMax.
std::optional<size_t> as_size(const nlohmann::json& v) {
  if (!v.is_number_unsigned() || v.get<uint64_t>() > kBytesMax) return std::nullopt;
  return v.get<size_t>();
}

}  // namespace

Status PackedStore::grow(size_t bytes) {
  const size_t wanted = std::max(bytes, buffers_.empty() ? options_.capacity_hint : kGrowBytes);
  LARIAT_ASSIGN(Buffer buffer, options_.shared ? Buffer::allocate_shared(aligned(wanted), "lariat-weights")
                                               : Buffer::allocate(aligned(wanted)));
  buffers_.push_back(std::move(buffer));
  used_ = 0;
  return Ok{};
}

Result<std::byte*> PackedStore::reserve(std::string_view name, size_t bytes) {
  LARIAT_CHECK(!sealed_, "reserve \"{}\" after seal", name);
  LARIAT_CHECK(bytes > 0, "reserve \"{}\" of no bytes", name);
  LARIAT_CHECK(!entries_.contains(name), "reserve \"{}\" twice", name);
  if (bytes > kBytesMax) {
    return make_error(Errc::kResourceExhausted, "packed weights of " + std::to_string(bytes) + " bytes");
  }
  if (buffers_.empty() || buffers_.back().size() - used_ < aligned(bytes)) {
    LARIAT_RETURN_IF_ERROR(grow(aligned(bytes)));
  }
  entries_.emplace(name, Entry{buffers_.size() - 1, used_, bytes});
  std::byte* data = buffers_.back().data() + used_;
  used_ += aligned(bytes);
  bytes_ += aligned(bytes);
  return data;
}

void PackedStore::seal() {
  if (std::exchange(sealed_, true)) return;
  for (Buffer& b : buffers_) {
    // A stray write to a weight is a crash here rather than a wrong answer on every rank.
    LARIAT_CHECK(mprotect(b.data(), b.size(), PROT_READ) == 0, "mprotect of {} bytes", b.size());
  }
}

std::span<const std::byte> PackedStore::find(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return {};
  return {buffers_[it->second.buffer].data() + it->second.offset, it->second.bytes};
}

std::vector<int> PackedStore::fds() const {
  LARIAT_CHECK(sealed_, "descriptors of an unsealed store");
  std::vector<int> result;
  for (const Buffer& b : buffers_) {
    LARIAT_CHECK(b.fd() >= 0, "descriptors of a private store");
    result.push_back(b.fd());
  }
  return result;
}

std::string PackedStore::table() const {
  LARIAT_CHECK(sealed_, "table of an unsealed store");
  nlohmann::json table = {{"buffers", nlohmann::json::array()}, {"entries", nlohmann::json::object()}};
  for (const Buffer& b : buffers_) table["buffers"].push_back(b.size());
  for (const auto& [name, e] : entries_) table["entries"][name] = {e.buffer, e.offset, e.bytes};
  return table.dump();
}

Status PackedStore::add_entry(std::string name, const Entry& e) {
  const bool fits = e.buffer < buffers_.size() && e.bytes > 0 && e.offset % Buffer::kAlign == 0 &&
                    e.offset <= buffers_[e.buffer].size() && e.bytes <= buffers_[e.buffer].size() - e.offset;
  if (!fits) return bad_table("\"" + printable(name) + "\" lies outside its buffer");
  bytes_ += aligned(e.bytes);
  entries_.emplace(std::move(name), e);
  return Ok{};
}

Result<PackedStore> PackedStore::open(std::span<const int> fds, std::string_view table) {
  LARIAT_ASSIGN(const nlohmann::json t, parse_json(table, {.depth_max = 4, .reject_duplicate_keys = true}));
  if (!t.is_object() || !t.contains("buffers") || !t["buffers"].is_array() || !t.contains("entries") ||
      !t["entries"].is_object()) {
    return bad_table("the table has another form");
  }
  if (t["buffers"].size() != fds.size()) {
    return bad_table(std::to_string(t["buffers"].size()) + " buffers, " + std::to_string(fds.size()) +
                     " descriptors");
  }
  PackedStore store;
  store.options_.shared = true;
  store.sealed_ = true;
  for (size_t i = 0; i < fds.size(); ++i) {
    const auto bytes = as_size(t["buffers"][i]);
    struct stat st{};
    // Beyond the end of the memory file every touch would be a SIGBUS.
    if (!bytes || *bytes == 0 || fstat(fds[i], &st) != 0 || static_cast<size_t>(st.st_size) < *bytes) {
      return bad_table("buffer " + std::to_string(i) + " does not fit its descriptor");
    }
    LARIAT_ASSIGN(Buffer buffer, Buffer::map_shared(fds[i], *bytes));
    store.buffers_.push_back(std::move(buffer));
  }
  for (const auto& [name, e] : t["entries"].items()) {
    if (!e.is_array() || e.size() != 3) return bad_table("the table has another form");
    const auto buffer = as_size(e[0]), offset = as_size(e[1]), bytes = as_size(e[2]);
    if (!buffer || !offset || !bytes) return bad_table("\"" + printable(name) + "\" has no valid place");
    LARIAT_RETURN_IF_ERROR(store.add_entry(name, {*buffer, *offset, *bytes}));
  }
  return store;
}

}  // namespace lariat
