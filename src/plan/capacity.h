// Whether a model, its KV pool and its workspace fit the ranks' memory, and what then can be served. The one
// arithmetic that `lariat plan` prints and serving allocates by. Pure numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "placement/placement.h"
#include "plan/refusal.h"

namespace lariat {

// K and V of one token on one rank that holds all of its layers. MLA: one head of the latent's width, v_dim
// 0.
struct KvShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t element_bytes = 0;
  int64_t slot_block = 1;  // slots are stored in blocks of so many; the last of a page is padded

  // Saturates at the largest int64_t, so that a nonsense shape never fits.
  int64_t bytes_per_token() const;
  int64_t page_bytes(int64_t slots) const;
};

struct RankMemory {
  int64_t memory_bytes = 0;     // what the rank may use in all; 0: not known, nothing is refused for it
  int64_t weights_bytes = 0;    // resident, repacked copies included
  int64_t workspace_bytes = 0;  // scratch of the largest step, whatever the context
};

struct CapacityRequest {
  std::vector<RankMemory> ranks;       // by rank
  std::vector<StripeIndex> stripes;    // by rank: its stripe of the positions
  std::optional<Placement> placement;  // of positions over stripes; required
  KvShape kv;
  int64_t model_context = 0;     // positions the model is made for
  int64_t context = 0;           // asked for; 0: the model's, or as much as fits
  int64_t kv_memory_bytes = -1;  // pool on each rank; -1: enough for max_batch contexts, or what fits
  int64_t page_tokens = 64;
  int64_t max_batch = 8;
};

struct RankCapacity {
  int64_t weights_bytes = 0;
  int64_t kv_bytes_per_token = 0;  // this rank's share, rounded up
  int64_t page_bytes = 0;
  int64_t kv_bytes = 0;  // of the pool
  int64_t workspace_bytes = 0;
  int64_t total_bytes = 0;
};

// What is served. With refusals the other numbers say how far it would go.
struct Capacity {
  std::vector<RankCapacity> ranks;
  int64_t page_tokens = 0;  // rounded up to the placement's period
  int64_t pages_total = 0;
  int64_t context_asked = 0;    // positions a row was to have: asked for by name, else the model's
  int64_t context = 0;          // positions a row may have
  int64_t max_context = 0;      // tokens one row can store: min(context, pool)
  int64_t max_concurrency = 0;  // rows of max_context tokens at once, at most max_batch
  std::vector<Refusal> refusals;
};

// All refusals together, in the order of the settings: context, page-tokens, max-batch, kv-memory, memory;
// what comes behind a refused setting is judged by its nearest. The pool: kv_memory_bytes if given; else
// pages for max_batch rows of `context`, or what memory leaves. A context asked for by name that the pool
// cannot hold once is refused with the largest that it can; the model's own is reduced to that. A pool given
// by name may be smaller than the context: rows then end there.
Capacity capacity(const CapacityRequest& request);

// Bytes on each rank of a pool that would hold one row of `context_asked`; saturates at the largest int64_t.
int64_t kv_bytes_of_context(const Capacity& capacity);

}  // namespace lariat
