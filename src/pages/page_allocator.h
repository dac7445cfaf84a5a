// Which logical pages are free, and how many tables hold each one that is not. Pure bookkeeping: ids only, no
// memory. docs/design.md §1 (page), §5 (the head owns them).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace lariat {

// Pages are taken with one holder, may gain holders (a shared prefix), and are free again when the last lets
// go. The page freed last is taken first (it is the likeliest to be in a cache), so the order of ids is a
// function of the calls alone. Every call is O(pages it names).
class PageAllocator {
 public:
  static constexpr int32_t kPagesMax = 1 << 26;

  // 1..kPagesMax pages, all free; kInvalidArgument otherwise.
  static Result<PageAllocator> create(int32_t pages_total);

  int32_t total() const { return static_cast<int32_t>(holders_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t used() const { return total() - free(); }

  // Appends `count` pages to `table`, or none and false if fewer are free. count >= 0.
  bool take(int64_t count, std::vector<PageId>& table);
  // One more holder of a page that has one. Bug: the page is free or out of range.
  void share(PageId page);
  // One holder fewer for each. Bug: a page is free or out of range.
  void release(std::span<const PageId> pages);
  // 0 if free.
  int32_t holders(PageId page) const;

 private:
  PageAllocator() = default;
  size_t index(PageId page) const;

  std::vector<int32_t> holders_;  // by page
  std::vector<PageId> free_;      // taken from the back
};

}  // namespace lariat
