#include "kv/kv_store.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace lariat {
namespace {

int64_t stride_of(const KvLayout& layout) {
  constexpr int64_t kAlign = Buffer::kAlign;
  return (layout.page_bytes() + kAlign - 1) / kAlign * kAlign;
}

Status check_config(const KvStoreConfig& c) {
  const KvLayout& l = c.layout;
  if (l.dtype != DType::kF32 && l.dtype != DType::kBF16 && l.dtype != DType::kF16)
    return make_error(Errc::kInvalidArgument,
                      fmt::format("KV type {} is not one of f32, bf16, f16", dtype_name(l.dtype)));
  if (c.layers < 1 || l.kv_heads < 1 || l.k_dim < 1 || l.v_dim < 1 || l.slots < 1 || c.pages_total < 1)
    return make_error(Errc::kInvalidArgument,
                      fmt::format("KV store of {} layers, {} heads of {}/{}, {} pages of {} slots", c.layers,
                                  l.kv_heads, l.k_dim, l.v_dim, c.pages_total, l.slots));
  const double bytes = static_cast<double>(c.layers) * static_cast<double>(c.pages_total) * l.kv_heads *
                       (static_cast<double>(l.slots) + kKvBlock) * (static_cast<double>(l.k_dim) + l.v_dim) *
                       4;
  if (bytes > 0.5 * static_cast<double>(std::numeric_limits<int64_t>::max()))
    return make_error(Errc::kResourceExhausted, fmt::format("KV store of {:.3g} bytes", bytes));
  return Ok{};
}

// Gives every page of the mapping its memory now. In steps: the kernel holds the address space's lock through
// each, and a heartbeat thread that allocates must not wait for gigabytes.
Status make_resident(Buffer& buffer) {
  constexpr size_t kStep = size_t{32} << 20;
  for (size_t at = 0; at < buffer.size(); at += kStep) {
    std::byte* data = buffer.data() + at;
    const size_t bytes = std::min(kStep, buffer.size() - at);
    if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) continue;
    if (errno != EINVAL) {
      return make_error(
          Errc::kResourceExhausted,
          fmt::format("cannot make {} bytes of KV memory resident: {}", buffer.size(), std::strerror(errno)));
    }
    // A kernel before 5.14: touch each page.
    constexpr size_t kPage = 4096;
    volatile std::byte* p = data;
    for (size_t i = 0; i < bytes; i += kPage) p[i] = std::byte{0};
  }
  return Ok{};
}

}  // namespace

int64_t KvStore::page_bytes(const KvStoreConfig& config) {
  return config.layers * stride_of(config.layout);
}

int64_t KvStore::bytes(const KvStoreConfig& config) {
  return config.pages_total * page_bytes(config);
}

int64_t KvStore::page_stride() const {
  return stride_of(config_.layout);
}

Result<KvStore> KvStore::create(const KvStoreConfig& config) {
  LARIAT_RETURN_IF_ERROR(check_config(config));
  auto buffer = Buffer::allocate(static_cast<size_t>(bytes(config)));
  if (!buffer.ok()) return buffer.error().in("KV store");
  LARIAT_RETURN_IF_ERROR(make_resident(*buffer));
  return KvStore(config, std::move(buffer).value());
}

KvPages KvStore::pages(LayerId layer, std::span<const PageId> table) {
  LARIAT_CHECK(layer.get() >= 0 && layer.get() < config_.layers, "layer {} of {}", layer.get(),
               config_.layers);
  const int64_t layer_bytes = config_.pages_total * page_stride();
  std::byte* base = buffer_.data() + layer.get() * layer_bytes;
  return KvPages{config_.layout, base, page_stride(), table.data(), static_cast<int64_t>(table.size())};
}

Status KvStore::check_table(std::span<const PageId> table) const {
  for (const PageId page : table)
    if (page.get() < 0 || page.get() >= config_.pages_total)
      return make_error(Errc::kInvalidArgument,
                        fmt::format("page {} of a pool of {}", page.get(), config_.pages_total));
  return Ok{};
}

// All bits set is a NaN in f32, bf16 and f16.
void KvStore::poison() {
  std::memset(buffer_.data(), 0xff, buffer_.size());
}

void KvStore::poison(std::span<const PageId> pages) {
  for (int layer = 0; layer < config_.layers; ++layer)
    for (const PageId page : pages)
      std::memset(buffer_.data() + (layer * config_.pages_total + page.get()) * page_stride(), 0xff,
                  static_cast<size_t>(page_stride()));
}

}  // namespace lariat
