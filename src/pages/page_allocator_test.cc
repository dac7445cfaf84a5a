// The allocator against a plain model of holders, over random calls; and its bugs are caught.
#include "pages/page_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace lariat {
namespace {

PageAllocator make(int32_t pages) {
  auto a = PageAllocator::create(pages);
  LARIAT_CHECK(a.ok());
  return std::move(a).value();
}

TEST(PageAllocator, TakesAllOrNothing) {
  auto a = make(4);
  std::vector<PageId> table{PageId(77)};
  EXPECT_TRUE(a.take(3, table));
  EXPECT_EQ(table, (std::vector<PageId>{PageId(77), PageId(0), PageId(1), PageId(2)}));
  EXPECT_FALSE(a.take(2, table));
  EXPECT_EQ(table.size(), 4u);
  EXPECT_EQ(a.free(), 1);
  EXPECT_TRUE(a.take(0, table));
  EXPECT_TRUE(a.take(1, table));
  EXPECT_EQ(a.used(), 4);
  EXPECT_FALSE(a.take(1, table));
}

TEST(PageAllocator, TakenAgainInTheSameOrder) {
  auto a = make(8);
  std::vector<PageId> first, second;
  ASSERT_TRUE(a.take(5, first));
  a.release(first);
  ASSERT_TRUE(a.take(5, second));
  EXPECT_EQ(first, second);
}

TEST(PageAllocator, SharedPageIsFreeWhenTheLastHolderLetsGo) {
  auto a = make(2);
  std::vector<PageId> table;
  ASSERT_TRUE(a.take(1, table));
  a.share(table[0]);
  a.share(table[0]);
  EXPECT_EQ(a.holders(table[0]), 3);
  a.release(table);
  a.release(table);
  EXPECT_EQ(a.used(), 1);
  a.release(table);
  EXPECT_EQ(a.used(), 0);
  EXPECT_EQ(a.holders(table[0]), 0);
}

TEST(PageAllocator, RandomCallsAgreeWithAModel) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    const auto total = static_cast<int32_t>(rng() % 40 + 1);
    auto a = make(total);
    std::map<int32_t, int32_t> holders;
    std::vector<std::vector<PageId>> tables;
    for (int call = 0; call < 500; ++call) {
      if (const auto what = rng() % 3; what == 0) {
        const auto count = static_cast<int64_t>(rng() % 6);
        std::vector<PageId> table;
        const bool fits = count <= total - static_cast<int64_t>(holders.size());
        ASSERT_EQ(a.take(count, table), fits);
        ASSERT_EQ(static_cast<int64_t>(table.size()), fits ? count : 0);
        for (const PageId p : table) {
          ASSERT_TRUE(p.get() >= 0 && p.get() < total);
          ASSERT_TRUE(holders.emplace(p.get(), 1).second) << "page " << p.get() << " handed out twice";
        }
        if (fits) tables.push_back(std::move(table));
      } else if (tables.empty()) {
        continue;
      } else if (what == 1) {
        auto copy = tables[rng() % tables.size()];
        for (const PageId p : copy) {
          a.share(p);
          ++holders[p.get()];
        }
        tables.push_back(std::move(copy));
      } else {
        const size_t i = rng() % tables.size();
        a.release(tables[i]);
        for (const PageId p : tables[i])
          if (--holders[p.get()] == 0) holders.erase(p.get());
        tables.erase(tables.begin() + static_cast<std::ptrdiff_t>(i));
      }
      ASSERT_EQ(a.used(), static_cast<int32_t>(holders.size()));
      for (int32_t p = 0; p < total; ++p)
        ASSERT_EQ(a.holders(PageId(p)), holders.contains(p) ? holders[p] : 0);
    }
    for (const auto& table : tables) a.release(table);
    EXPECT_EQ(a.free(), total);
  }
}

TEST(PageAllocator, RefusesASizeThatIsNoPool) {
  for (const int32_t total : {0, -1, PageAllocator::kPagesMax + 1})
    EXPECT_EQ(PageAllocator::create(total).error().code, Errc::kInvalidArgument);
}

TEST(PageAllocatorDeathTest, BugsAreCaught) {
  auto a = make(2);
  std::vector<PageId> table;
  ASSERT_TRUE(a.take(1, table));
  a.release(table);
  EXPECT_DEATH(a.release(table), "is free already");
  EXPECT_DEATH(a.share(table[0]), "is free");
  EXPECT_DEATH((void)a.holders(PageId(2)), "page 2 of 2");
  EXPECT_DEATH((void)a.holders(PageId(-1)), "page -1 of 2");
}

}  // namespace
}  // namespace lariat
