#include "kv/kv_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace lariat {
namespace {

KvStoreConfig small(DType dtype) {
  return {3, {dtype, 2, 20, 12, 22}, 5};
}

TEST(KvStore, PagesOfLayersDoNotOverlap) {
  auto store = KvStore::create(small(DType::kBF16));
  ASSERT_TRUE(store.ok()) << store.error().message;
  const std::vector<PageId> table{PageId(4), PageId(0), PageId(2)};
  std::vector<std::pair<std::byte*, std::byte*>> ranges;
  for (int layer = 0; layer < 3; ++layer) {
    const KvPages pages = store->pages(LayerId(layer), table);
    EXPECT_EQ(pages.pages_count, 3);
    EXPECT_EQ(pages.layout, store->config().layout);
    for (const PageId page : table) {
      std::byte* at = pages.base + page.get() * pages.page_stride;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % 64, 0u);
      ranges.emplace_back(at, at + pages.layout.page_bytes());
      std::memset(at, 0, static_cast<size_t>(pages.layout.page_bytes()));  // inside the mapping, or ASan says
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
  EXPECT_EQ(store->bytes(), 5 * KvStore::page_bytes(store->config()));
  EXPECT_GE(store->bytes(), 3 * 5 * store->config().layout.page_bytes());
}

TEST(KvStore, PoisonIsNanInEveryType) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    auto store = KvStore::create(small(dtype));
    ASSERT_TRUE(store.ok());
    const std::vector<PageId> table{PageId(0), PageId(1)};
    const auto first = [&](int layer, int page) {
      const KvPages pages = store->pages(LayerId(layer), table);
      const std::byte* at = pages.base + page * pages.page_stride + pages.layout.page_bytes();
      if (dtype == DType::kF32) {
        float x;
        std::memcpy(&x, at - 4, 4);
        return x;
      }
      uint16_t bits;
      std::memcpy(&bits, at - 2, 2);
      return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    };
    EXPECT_EQ(first(2, 4), 0.0f);
    store->poison(std::span(table).first(1));
    for (int layer = 0; layer < 3; ++layer) {
      EXPECT_TRUE(std::isnan(first(layer, 0)));
      EXPECT_EQ(first(layer, 1), 0.0f);
    }
    store->poison();
    for (int layer = 0; layer < 3; ++layer) EXPECT_TRUE(std::isnan(first(layer, 4)));
  }
}

TEST(KvStore, IsResidentFromTheStart) {
  auto store = KvStore::create({2, {DType::kF32, 4, 64, 64, 64}, 40});
  ASSERT_TRUE(store.ok());
  const std::vector<PageId> table{PageId(0)};
  std::byte* base = store->pages(LayerId(0), table).base;
  std::vector<unsigned char> resident((static_cast<size_t>(store->bytes()) + 4095) / 4096);
  ASSERT_EQ(mincore(base, static_cast<size_t>(store->bytes()), resident.data()), 0);
  for (const unsigned char page : resident) ASSERT_TRUE(page & 1);
}

TEST(KvStore, RefusesWhatCannotBe) {
  KvStoreConfig c = small(DType::kI8);
  EXPECT_EQ(KvStore::create(c).error().code, Errc::kInvalidArgument);
  c = small(DType::kF32);
  c.pages_total = 0;
  EXPECT_EQ(KvStore::create(c).error().code, Errc::kInvalidArgument);
  c.pages_total = int64_t{1} << 60;
  EXPECT_EQ(KvStore::create(c).error().code, Errc::kResourceExhausted);
  auto store = KvStore::create(small(DType::kF32));
  ASSERT_TRUE(store.ok());
  const std::vector<PageId> good{PageId(0), PageId(4)}, high{PageId(5)}, low{PageId(-1)};
  EXPECT_TRUE(store->check_table(good).ok());
  EXPECT_FALSE(store->check_table(high).ok());
  EXPECT_FALSE(store->check_table(low).ok());
}

}  // namespace
}  // namespace lariat
