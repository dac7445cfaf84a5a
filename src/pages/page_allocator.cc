#include "pages/page_allocator.h"

namespace lariat {

Result<PageAllocator> PageAllocator::create(int32_t pages_total) {
  if (pages_total < 1 || pages_total > kPagesMax)
    return make_error(Errc::kInvalidArgument,
                      fmt::format("a pool has 1..{} pages, not {}", kPagesMax, pages_total), "kv-memory");
  PageAllocator a;
  a.holders_.assign(static_cast<size_t>(pages_total), 0);
  a.free_.reserve(static_cast<size_t>(pages_total));
  for (int32_t page = pages_total - 1; page >= 0; --page) a.free_.emplace_back(page);
  return a;
}

bool PageAllocator::take(int64_t count, std::vector<PageId>& table) {
  LARIAT_CHECK(count >= 0, "count {}", count);
  if (count > free()) return false;
  for (int64_t i = 0; i < count; ++i) {
    const PageId page = free_.back();
    free_.pop_back();
    holders_[index(page)] = 1;
    table.push_back(page);
  }
  return true;
}

void PageAllocator::share(PageId page) {
  LARIAT_CHECK(holders_[index(page)] > 0, "page {} is free", page.get());
  ++holders_[index(page)];
}

void PageAllocator::release(std::span<const PageId> pages) {
  // From the back, so that a table taken again comes out in the same order.
  for (auto it = pages.rbegin(); it != pages.rend(); ++it) {
    LARIAT_CHECK(holders_[index(*it)] > 0, "page {} is free already", it->get());
    if (--holders_[index(*it)] == 0) free_.push_back(*it);
  }
}

int32_t PageAllocator::holders(PageId page) const {
  return holders_[index(page)];
}

size_t PageAllocator::index(PageId page) const {
  LARIAT_CHECK(page.get() >= 0 && page.get() < total(), "page {} of {}", page.get(), total());
  return static_cast<size_t>(page.get());
}

}  // namespace lariat
