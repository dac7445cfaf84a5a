// The attention of one decoder layer, as a model calls it: new K/V are stored, every row attends. How many
// ranks hold the keys, and what moves between them, is behind this interface (docs/design.md §4).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "comm/group.h"
#include "kv/kv_store.h"
#include "ops/attention.h"
#include "placement/placement.h"
#include "ring/strategy.h"

namespace lariat {

// One sequence's part in a step, as this rank computes it. The memory it points to lives until the step's
// last layer is done.
struct StepRow {
  int64_t first = 0;                           // its first token in the step's [T, ..] arrays
  int64_t n = 0;                               // new tokens computed here; 0 is allowed
  const int32_t* positions = nullptr;          // [n], rising
  int64_t length = 0;                          // positions the sequence has after this step, on all ranks
  std::span<const std::vector<PageId>> pages;  // a table for each cache group

  // Of several ranks only. Every rank names the row, also one that computes none of it, with the same
  // `strategy`, `resident` and `length`; its new tokens are [resident, length). pass_kv, pass_q: `positions`
  // are those of the new tokens that placement gives to this rank's ring member. gather: all new tokens, on
  // every member. local (replicated K/V only): all of them, on one rank; others leave the row out.
  RowStrategy strategy = RowStrategy::kLocal;
  int64_t resident = 0;
};

// Query, key and value of all T tokens of a step, rope applied: q [T, heads, k_dim], k [T, kv_heads, k_dim],
// v [T, kv_heads, v_dim], f32, strides in floats between tokens.
struct LayerInputs {
  const float* q = nullptr;
  int64_t q_stride = 0;
  const float* k = nullptr;
  int64_t k_stride = 0;
  const float* v = nullptr;
  int64_t v_stride = 0;
};

// K/V that a row's home rank decoded alone (replicated K/V only): positions [begin, end).
struct HomeRow {
  std::span<const std::vector<PageId>> pages;
  int64_t begin = 0;
  int64_t end = 0;
  int32_t home = 0;  // ring member
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  // Fixes the rows of the coming layer() calls. kInvalidArgument for rows that cannot be: tables that are too
  // short or name pages outside the pool, positions that do not rise or lie behind `length`.
  virtual Status begin_step(std::span<const StepRow> rows) = 0;

  // Stores the layer's new K/V rounded to the KV type, then attends all rows: out [T, heads, v_dim], only the
  // rows' tokens are written. Every new token sees itself and its row's other new tokens as the mask says.
  // One rank: cannot fail. Many: comm's errors; the groups are dead then.
  virtual Status layer(LayerId layer, const LayerInputs& inputs, float* out) = 0;

  // Gives every rank what the home ranks of `rows` have of them: when a row ends, moves, or is attended by
  // pass_kv again. Every rank calls it with the same rows, between steps. Errors: as layer(), and
  // kResourceExhausted (the groups are dead then too).
  virtual Status share(std::span<const HomeRow> rows) = 0;

  // Bytes of buffers it holds now, beside the stream's scratch.
  virtual int64_t workspace_bytes() const { return 0; }
};

// Where a layer keeps its K/V, and what it sees.
struct LayerCache {
  int group = 0;  // of AttentionConfig::groups
  LayerId index;  // inside the group's store
  Mask mask;
};

// The ranks that hold the keys this rank does not. docs/design.md §1: P = ring size * duplicates.
struct StripeComm {
  Group* ring = nullptr;        // the cp ranks at this rank's t, by c; null: one
  Group* duplicates = nullptr;  // the R ranks of this c that hold the same KV heads, by t % R; null: one
  bool replicated = false;      // every rank keeps all K/V; the placement says who computes
  int64_t ring_block = 4096;    // slots of a sub-block that rotates; rounded up to a multiple of kKvBlock
  std::chrono::milliseconds timeout{10'000};  // of every wait
};

struct AttentionConfig {
  Stream* stream = nullptr;
  int heads = 0;  // on this rank
  float scale = 1.0f;
  std::vector<KvStore*> groups;    // cache groups; they outlive the backend
  std::vector<LayerCache> layers;  // by model layer
  Placement placement;             // of the stripe group
  StripeIndex stripe;              // this rank's: c * R + t % R
  StripeComm comm = {};
};

// Bytes the backend's workspace_bytes() reaches at most, for steps of which no ring member computes more than
// `tokens_max` tokens. `layout`: of the cache group with the largest slots. 0 with one rank.
struct StripeWorkspace {
  int32_t members = 1;
  int32_t duplicates = 1;
  bool replicated = false;
  int64_t ring_block = 4096;
  int heads = 0;  // on this rank
  KvLayout layout;
  int64_t tokens_max = 0;
};
int64_t stripe_workspace_bytes(const StripeWorkspace& shape);

// The backend for a layout. kInvalidArgument for stores that do not fit the layers or the placement, and for
// groups that do not fit it.
Result<std::unique_ptr<AttentionBackend>> create_attention(const AttentionConfig& config);

}  // namespace lariat
