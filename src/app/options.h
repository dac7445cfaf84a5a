// The options of every command, parsed once, resolved, then const. docs/design.md §7.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/option_values.h"
#include "plan/layout.h"
#include "plan/step_plan.h"
#include "tensor/dtype.h"

namespace lariat {

// What the ranks of one machine are to a command that runs them itself.
enum class RankTransport : uint8_t { kGloo, kLocal };  // processes over Gloo; threads of this process

enum class KvMode : uint8_t { kStriped, kReplicated };

// Where the model is: exactly one of the two.
struct ModelOptions {
  std::string model;                              // folder, file or name
  std::filesystem::path random_weights;           // CONFIG.json of --random-weights
  std::vector<std::filesystem::path> model_dirs;  // searched for names
};

struct LayoutOptions {
  int32_t tp = 1;
  int32_t cp = 1;
  KvMode kv_mode = KvMode::kStriped;
  int32_t interleave = 1;
  Strategy strategy = Strategy::kAuto;
  std::vector<int32_t> rank_shares;
  int32_t threads = 0;         // per rank; resolved, never 0 after parsing
  std::optional<DType> dtype;  // absent: the file's
  DType kv_type = DType::kF32;
  int32_t context = 0;      // 0: the model's
  int64_t kv_memory = 0;    // bytes a rank; 0: auto
  int32_t page_tokens = 0;  // 0: 64 a rank, in whole blocks
  int32_t max_batch = 8;
  int32_t chunk_tokens = 512;  // 0: whole prompt
  std::chrono::milliseconds comm_timeout{10'000};

  Layout layout() const { return {.tp = tp, .cp = cp}; }
  // With one cp rank there is nothing to replicate.
  bool replicated() const { return kv_mode == KvMode::kReplicated && cp > 1; }
};

struct ServeOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::filesystem::path api_key_file;
  double stall_timeout_s = 300;
  double heartbeat_timeout_s = 3;
  double request_timeout_s = 0;  // 0: none
  double drain_timeout_s = 30;
  int32_t max_restarts = 3;
  bool dry_run = false;
};

// Each reads its part of `values` and adds what is wrong to `faults`; the returned options are usable only if
// none were.
ModelOptions read_model_options(const OptionValues& values, Faults& faults);
LayoutOptions read_layout_options(const OptionValues& values, Faults& faults);
ServeOptions read_serve_options(const OptionValues& values, Faults& faults);
// verify's and bench's --transport.
RankTransport read_rank_transport(const OptionValues& values, RankTransport fallback, Faults& faults);

// "tp=1,cp=3"
std::string layout_name(const LayoutOptions& layout);
// The flags that make another process resolve the same layout (the head passes them to its workers).
std::vector<std::string> layout_flags(const LayoutOptions& layout);

}  // namespace lariat
