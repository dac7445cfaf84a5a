// Weights as the kernels want them, packed once, in memory that the ranks of one machine can share.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/buffer.h"

namespace lariat {

// One process reserves, fills and seals; others open() the same pages from its descriptors and table, so that
// P ranks hold one copy. reserve() is for one thread; what it returned may be filled by many.
class PackedStore {
 public:
  struct Options {
    bool shared = false;       // memfd instead of private pages
    size_t capacity_hint = 0;  // bytes expected; a good guess gives one buffer (pages unused cost nothing)
  };

  PackedStore() = default;
  explicit PackedStore(const Options& options) : options_(options) {}

  // `bytes` > 0 of zeroed memory, aligned to Buffer::kAlign, valid for the store's life. kResourceExhausted
  // if there is no memory. Bug: a name twice, or after seal().
  Result<std::byte*> reserve(std::string_view name, size_t bytes);
  // From here on the memory is read-only, here and in the processes that open it.
  void seal();
  bool sealed() const { return sealed_; }

  // Empty if there is no such name.
  std::span<const std::byte> find(std::string_view name) const;
  size_t size() const { return entries_.size(); }
  // Bytes reserved, alignment included: what `plan` counts.
  size_t bytes() const { return bytes_; }

  // What another process needs: descriptors in order (of a shared store; pass them by fork or SCM_RIGHTS),
  // and the table as JSON. Bug: not shared or not sealed.
  std::vector<int> fds() const;
  std::string table() const;
  // Maps a sealed store read-only; takes duplicates of fds. kCorruptData if table and descriptors do not fit.
  static Result<PackedStore> open(std::span<const int> fds, std::string_view table);

 private:
  struct Entry {
    size_t buffer = 0;
    size_t offset = 0;
    size_t bytes = 0;
  };
  Status grow(size_t bytes);
  Status add_entry(std::string name, const Entry& entry);

  Options options_;
  std::vector<Buffer> buffers_;
  std::map<std::string, Entry, std::less<>> entries_;
  size_t used_ = 0;  // bytes of the last buffer that are given away
  size_t bytes_ = 0;
  bool sealed_ = false;
};

}  // namespace lariat
