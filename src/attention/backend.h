// Attention as a decoder calls it, whatever lies behind: one rank's own keys, a ring, an all-gather.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "ops/attention.h"
#include "plan/step_plan.h"
#include "tensor/stream.h"

namespace lariat {

// One row's part in a pass: new positions [pos0, pos0 + n) after pos0 resident ones, over all ranks of the
// group.
struct AttendRow {
  std::span<const PageId> pages;  // logical page table, covering pos0 + n positions
  int32_t pos0 = 0;
  int32_t n = 0;
  Strategy strategy = Strategy::kAuto;
};

// Projections of the pass's tokens that this rank computes, rows in order, each row's tokens in position
// order. q [t, H, D], k and v [t, G, D] at `stride` floats between tokens, rope applied; out [t, H, Dv]
// contiguous.
struct AttentionInputs {
  LayerId layer;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t stride = 0;
  int64_t t = 0;
  Mask mask;
  float* out = nullptr;
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  // Rows of the coming pass; spans stay valid until the next call. Works out slots and positions once for all
  // layers.
  virtual void begin_pass(std::span<const AttendRow> rows) = 0;

  // Rounds k and v to the KV type and stores what this rank owns, then attends every row's q over its visible
  // keys, the new ones included. Errors: a peer's loss or a deadline, by name; one rank alone cannot fail.
  virtual Status layer(Stream& stream, const AttentionInputs& inputs) = 0;
};

}  // namespace lariat
