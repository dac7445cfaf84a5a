// What head and rank say to each other, as values; the wire form is control.proto's. docs/design.md §5.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/ids.h"
#include "base/result.h"
#include "plan/step_plan.h"

namespace lariat {

inline constexpr uint32_t kControlProtocolMajor = 1;
inline constexpr uint32_t kControlProtocolMinor = 1;

// --- head to rank ---

// First message of a session; the rank loads and answers with progress and a hello.
struct StartRank {
  Epoch epoch;
  int32_t rank = 0;
  int32_t world = 1;
  uint32_t protocol_major = kControlProtocolMajor;
  uint32_t protocol_minor = kControlProtocolMinor;
  std::string build_id;
  friend bool operator==(const StartRank&, const StartRank&) = default;
};

// Nobody waits for the step any more: it may stop at the next layer and answer kCancelled for every row.
struct AbortStep {
  Epoch epoch;
  StepId step;
  friend bool operator==(const AbortStep&, const AbortStep&) = default;
};

// The rank ends with exit code 0.
struct ShutdownRank {
  Epoch epoch;
  friend bool operator==(const ShutdownRank&, const ShutdownRank&) = default;
};

using ToRank = std::variant<StartRank, StepPlan, AbortStep, ShutdownRank>;

// --- rank to head ---

struct RankHello {
  Epoch epoch;
  Hello hello;
};

struct LoadProgress {
  Epoch epoch;
  double fraction = 0;  // 0..1, never falls
  std::string what;     // "reading weights"
  friend bool operator==(const LoadProgress&, const LoadProgress&) = default;
};

struct Heartbeat {
  Epoch epoch;
  StepId step;         // running now; 0 if none
  uint64_t kicks = 0;  // units of work done since the process started: loading and steps
  int64_t rss_bytes = 0;
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

enum class FailureKind : uint8_t {
  kLoad,     // the rank cannot be what it was asked to be; it exits
  kFatal,    // its state is not to be trusted any more; it exits
  kRefused,  // it did not take one message (another epoch, a plan that breaks the rules) and lives on
};

struct RankFailure {
  Epoch epoch;
  StepId step;  // 0: none
  FailureKind kind = FailureKind::kFatal;
  Error error;
};

using FromRank = std::variant<RankHello, LoadProgress, Heartbeat, StepOutcome, RankFailure>;

}  // namespace lariat
