// Ranks as processes over loopback or a network declared trusted: Gloo's TCP transport, which has neither TLS
// nor authentication. docs/design.md §5.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "comm/rank_groups.h"

namespace lariat {

struct GlooOptions {
  std::filesystem::path store_dir;  // where the ranks find each other: ours, mode 0700, emptied by its owner
  std::string prefix;               // of one attempt to form: the epoch. Letters, digits, '-', '_'
  Layout layout;
  int32_t duplicates = 1;  // layout_shape's R
  Rank rank;
  std::chrono::milliseconds connect_timeout{10'000};
  std::string hostname = "127.0.0.1";            // numeric address this rank listens on
  const std::atomic<bool>* cancelled = nullptr;  // forming ends within ~20 ms of its becoming true
  // A peer says that it waited for this very rank beyond the deadline: its thread that should compute may be
  // stuck. On a thread of the groups, at most once a peer; may end the process.
  std::function<void(const Error& why)> on_blamed = {};
};

// All groups of one rank; every rank of the layout calls it with the same prefix. Afterwards nothing of the
// attempt is left in store_dir. Errors: kInvalidArgument for options, kDeadlineExceeded or kUnavailable
// naming the rank that did not come ("rank 2" in param), kCancelled.
//
// The four groups share one set of connections and fail together: a peer that dies, aborts, or is waited for
// beyond a deadline ends them all, at once, on every rank, with the same error. Sizes that disagree, a bug,
// never match and end in a deadline. Leave (destroy the groups) when the peers' calls are over too: who still
// waits is told.
Result<RankGroups> make_gloo_rank_groups(const GlooOptions& options);

}  // namespace lariat
