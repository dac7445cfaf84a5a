// The head as the HTTP layer sees it: requests go in, events come out. docs/design.md §5.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sched/request.h"

namespace lariat {

struct TokenText {
  int32_t id = 0;
  std::string bytes;  // the token's own bytes; may be part of a character
  float logprob = 0;
  struct Alternative {
    int32_t id = 0;
    std::string bytes;
    float logprob = 0;
  };
  std::vector<Alternative> top;
};

// One thing that happened to one choice. Text is always whole UTF-8 characters; concatenated over a stream it
// equals the non-streamed text. After `finish` != kNone no event of that choice follows.
struct ChoiceEvent {
  int32_t choice = 0;
  std::string text;                 // delta; may be empty while a character or a stop string is incomplete
  std::vector<int32_t> token_ids;   // tokens generated since the last event (end ids not included)
  std::vector<TokenText> logprobs;  // one a token of token_ids, if asked for
  FinishReason finish = FinishReason::kNone;
  Error error;  // with kError
};

// Once, before the first ChoiceEvent, if prompt_logprobs was asked for: one a prompt token, the first without
// logprob.
struct PromptEvent {
  std::vector<TokenText> tokens;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;  // over all choices, end ids included
};

struct GenerationEvents {
  std::vector<ChoiceEvent> choices;
  std::optional<PromptEvent> prompt;
  bool done = false;  // every choice has finished; `usage` is final
  Usage usage;
};

// Called on the engine's thread; must not block. Never called again after `done` or after the Generation is
// destroyed by cancel() returning.
using GenerationSink = std::function<void(GenerationEvents)>;

struct RankState {
  int32_t rank = 0;
  int64_t pid = 0;
  std::string host;
  std::string device;
  std::string state;  // "starting", "ready", "lost"
  int64_t kv_pages_used = 0;
  int64_t kv_pages_total = 0;
  int64_t rss_bytes = 0;
  int64_t heartbeat_age_ms = 0;
  int64_t comm_wait_us = 0;        // of the last step
  int64_t comm_wait_total_us = 0;  // of all steps, those of ranks before it in its place included
  int32_t restarts = 0;
};

struct RequestState {
  std::string id;
  std::string state;  // "waiting", "prefill", "decode"
  int64_t prompt_tokens = 0;
  int64_t prefilled_tokens = 0;
  int64_t completion_tokens = 0;
  double age_seconds = 0;
};

// The last loss of a rank and how it was made good; ms since the head noticed it.
struct RecoveryState {
  uint64_t epoch = 0;  // the one that was lost
  int32_t rank = 0;
  std::string cause;
  int64_t ended_ms = 0;                  // nothing of the old group is left
  std::optional<int64_t> formed_ms;      // the new group is ready; not yet, or it was lost before
  std::optional<int64_t> recomputed_ms;  // the first step for the requests that wait; none if none waited
};

struct EngineState {
  std::string model;
  uint64_t epoch = 0;
  bool ready = false;
  std::string reason;  // why not ready
  std::vector<RankState> ranks;
  std::optional<RecoveryState> last_recovery;
  std::vector<RequestState> requests;
  int64_t requests_running = 0;
  int64_t requests_waiting = 0;
  int64_t kv_pages_used = 0;
  int64_t kv_pages_total = 0;
  int64_t kv_page_tokens = 0;
  // Monotonic counters for /metrics.
  int64_t prompt_tokens_total = 0;
  int64_t generation_tokens_total = 0;
  int64_t requests_total = 0;
  int64_t requests_cancelled_total = 0;
  int64_t requests_failed_total = 0;
  int64_t steps_total = 0;
  int64_t worker_restarts_total = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Takes the request or says at once why not: kUnavailable while forming (503) or draining,
  // kResourceExhausted when the queue is full (429), kInvalidArgument if it can never fit the KV memory (400,
  // both numbers in the message). Thread-safe. On success events arrive at `sink` until done.
  virtual Status submit(GenerateRequest request, GenerationSink sink) = 0;
  // Ends a request: its row and pages are free within two steps. True if it was known. No event follows the
  // return except that one already being delivered may finish first (never after return). Thread-safe.
  virtual bool cancel(const std::string& id) = 0;
  virtual EngineState state() const = 0;
};

}  // namespace lariat
