// Packed weights once a machine: the first rank of a shard packs, the others map the same pages.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "weights/packed_store.h"
#include "weights/weights_offer.h"

namespace lariat {

struct SharedWeightsOptions {
  std::filesystem::path dir;  // private (0700), of one head's ranks; empty: not shared
  std::string key;            // everything the packed bytes depend on: fingerprint, types, shard
  size_t capacity_hint = 0;   // as of PackedStore
  std::chrono::milliseconds timeout{600'000};  // longest wait for another rank that packs
};

struct SharedWeights {
  using Build = std::function<Status(PackedStore&)>;  // reserves and fills; sealing is not its work

  PackedStore store;  // sealed
  // Hands the store to ranks that come later, from any rank that has it. Null where that is impossible.
  std::unique_ptr<WeightsOffer> offer;
  bool built = false;  // here, rather than mapped

  // Ranks may come in any order, at once, or long after the one that packed has died: whoever holds the
  // weights offers them. Of several that find no offer one packs (a lock file decides; the lock dies with its
  // process) and the others wait. If sharing fails or takes longer than the timeout, this rank packs its own
  // copy and the log says why. Errors: build's.
  static Result<SharedWeights> obtain(const SharedWeightsOptions& options, const Build& build);
};

}  // namespace lariat
