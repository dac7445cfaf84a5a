// A rank's K/V memory for the layers of one cache group: a pool of pages a layer, all in one resident buffer.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "ops/kv_layout.h"
#include "tensor/buffer.h"

namespace lariat {

struct KvStoreConfig {
  int layers = 0;
  KvLayout layout;          // of one page of one layer
  int64_t pages_total = 0;  // logical pages; every layer has its own bytes for each
};

// Memory is made resident when the store is created and stays so: what `plan` predicts is what the rank holds
// from its first second, and a shortage shows at start, not in the middle of a request.
class KvStore {
 public:
  // kInvalidArgument for a layout no kernel reads; kResourceExhausted (with the bytes) if memory is refused.
  static Result<KvStore> create(const KvStoreConfig& config);
  // Bytes that create() makes resident, and bytes a token costs (a page's share, all layers, K and V).
  static int64_t bytes(const KvStoreConfig& config);
  static int64_t page_bytes(const KvStoreConfig& config);

  const KvStoreConfig& config() const { return config_; }
  int64_t bytes() const { return bytes(config_); }

  // `table` [pages of one row] seen through layer `layer` (0.. of this store). The ids must be valid where
  // they are used: check_table says so for data from outside. Bug: a layer that is not here.
  KvPages pages(LayerId layer, std::span<const PageId> table);

  // kInvalidArgument naming the first id outside the pool.
  Status check_table(std::span<const PageId> table) const;

  // Fills K and V of all pages, or of those named, in every layer, with NaN: what reads an unwritten slot
  // then shows itself in the logits (--poison).
  void poison();
  void poison(std::span<const PageId> pages);

 private:
  KvStore(const KvStoreConfig& config, Buffer buffer) : config_(config), buffer_(std::move(buffer)) {}
  int64_t page_stride() const;

  KvStoreConfig config_;
  Buffer buffer_;
};

}  // namespace lariat
