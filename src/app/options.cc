#include "app/options.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace lariat {
namespace {

constexpr int64_t kRanksMax = 1024;
constexpr int64_t kTokensMax = int64_t{1} << 30;

// "tp=2,cp=3", both optional, each once.
void read_layout(const OptionValues& v, LayoutOptions& out, Faults& faults) {
  const auto* layout = v.find("layout");
  const auto* ranks = v.find("ranks");
  if (layout && ranks) {
    faults.add(fmt::format("{} and {} both say how many ranks; give one", layout->origin, ranks->origin));
    return;
  }
  if (ranks) out.cp = static_cast<int32_t>(read_int(v, "ranks", 1, {1, kRanksMax}, faults));
  if (!layout) return;
  bool seen_tp = false;
  bool seen_cp = false;
  for (const std::string& part : split(layout->text, ',')) {
    const int64_t value = part.size() > 3 ? parse_int(std::string_view(part).substr(3)).value_or(0) : 0;
    const bool is_tp = part.rfind("tp=", 0) == 0;
    const bool is_cp = part.rfind("cp=", 0) == 0;
    bool& seen = is_tp ? seen_tp : seen_cp;
    if ((!is_tp && !is_cp) || value < 1 || value > kRanksMax || seen) {
      faults.add(fmt::format("{}: '{}' is not a layout; write tp=A,cp=B", layout->origin, layout->text));
      return;
    }
    seen = true;
    (is_tp ? out.tp : out.cp) = static_cast<int32_t>(value);
  }
  if (out.layout().world() <= Layout::kWorldMax) return;
  faults.add(fmt::format("{}: {} are {} ranks, at most {}", layout->origin, layout->text,
                         out.layout().world(), Layout::kWorldMax));
  out.tp = out.cp = 1;
}

// One for all ranks, or one a rank.
void read_devices(const OptionValues& v, int32_t world, Faults& faults) {
  const auto* device = v.find("device");
  if (!device) return;
  const std::vector<std::string> names = split(device->text, ',');
  if (names.size() != 1 && names.size() != static_cast<size_t>(world)) {
    faults.add(fmt::format("{}: {} devices for {} ranks; give one, or one a rank", device->origin,
                           names.size(), world));
  }
  for (const std::string& name : names) {
    if (name == "cuda") {
      faults.add(fmt::format("{}: this build has no CUDA ranks; use cpu or auto", device->origin));
    } else if (name != "cpu" && name != "auto") {
      faults.add(fmt::format("{}: '{}' is not one of cpu, cuda, auto", device->origin, name));
    }
  }
}

// Options of the design that this version understands and cannot serve yet: refused, never ignored.
void refuse_unsupported(const OptionValues& v, Faults& faults) {
  for (const std::string_view name :
       {"hosts", "transport", "tls-dir", "token-file", "interface", "data-ports"}) {
    if (const auto* given = v.find(name)) {
      faults.add(fmt::format(
          "{}: ranks on other hosts are not supported in this version; all ranks run on this machine",
          given->origin));
    }
  }
}

int32_t default_threads(const LayoutOptions& out) {
  const auto cores = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  return std::max(1, cores / out.layout().world());
}

DType read_kv_type(const OptionValues& v, Faults& faults) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  const auto* given = v.find("kv-type");
  if (given && given->text == "int8") {
    faults.add(
        fmt::format("{}: int8 KV is not supported in this version; use f32, bf16 or f16", given->origin));
    return DType::kF32;
  }
  return kTypes[read_choice(v, "kv-type", {"f32", "bf16", "f16"}, 0, faults)];
}

}  // namespace

ModelOptions read_model_options(const OptionValues& v, Faults& faults) {
  ModelOptions out;
  out.model = read_text(v, "model", "");
  out.random_weights = read_text(v, "random-weights", "");
  if (out.model.empty() == out.random_weights.empty()) {
    faults.add(out.model.empty()
                   ? "no model: name a folder, or needle-5m, or give --random-weights CONFIG.json"
                   : "MODEL and --random-weights both name a model; give one");
  }
  const std::string dir = read_text(v, "models-dir", "");
  if (!dir.empty()) {
    out.model_dirs.emplace_back(dir);
  } else if (const char* xdg = std::getenv("XDG_DATA_HOME"); xdg && *xdg) {
    out.model_dirs.emplace_back(std::filesystem::path(xdg) / "lariat" / "models");
  } else if (const char* home = std::getenv("HOME"); home && *home) {
    out.model_dirs.emplace_back(std::filesystem::path(home) / ".local" / "share" / "lariat" / "models");
  }
  return out;
}

LayoutOptions read_layout_options(const OptionValues& v, Faults& faults) {
  LayoutOptions out;
  read_layout(v, out, faults);
  read_devices(v, out.layout().world(), faults);
  out.kv_mode = static_cast<KvMode>(read_choice(v, "kv", {"striped", "replicated"}, 0, faults));
  out.interleave = static_cast<int32_t>(read_int(v, "interleave", 1, {1, 1 << 16}, faults));
  out.strategy = static_cast<Strategy>(read_choice(v, "strategy", {"auto", "pass_kv", "pass_q"}, 0, faults));
  out.rank_shares = read_int_list(v, "rank-shares", {1, 1024}, faults);
  if (!out.rank_shares.empty() && static_cast<int32_t>(out.rank_shares.size()) != out.cp) {
    faults.add(fmt::format("{}: {} shares for {} cp ranks; give one share a rank",
                           v.find("rank-shares")->origin, out.rank_shares.size(), out.cp));
  }
  out.threads = static_cast<int32_t>(read_int(v, "threads", default_threads(out), {1, 1024}, faults));
  const int dtype = read_choice(v, "dtype", {"auto", "f32", "bf16"}, 0, faults);
  if (dtype > 0) out.dtype = dtype == 1 ? DType::kF32 : DType::kBF16;
  out.kv_type = read_kv_type(v, faults);
  out.context = static_cast<int32_t>(read_int(v, "context", 0, {1, kTokensMax}, faults));
  out.kv_memory = read_bytes_or_auto(v, "kv-memory", faults);
  out.page_tokens = static_cast<int32_t>(read_int(v, "page-tokens", 0, {1, 1 << 20}, faults));
  out.max_batch = static_cast<int32_t>(read_int(v, "max-batch", out.max_batch, {1, 4096}, faults));
  out.chunk_tokens = static_cast<int32_t>(
      read_int(v, "chunk-tokens", int64_t{out.chunk_tokens} * out.cp, {0, kTokensMax}, faults));
  out.comm_timeout = std::chrono::milliseconds(
      static_cast<int64_t>(read_seconds(v, "comm-timeout", 10, 0.1, faults) * 1000));
  return out;
}

ServeOptions read_serve_options(const OptionValues& v, Faults& faults) {
  ServeOptions out;
  refuse_unsupported(v, faults);
  out.host = read_text(v, "host", out.host);
  out.port = static_cast<uint16_t>(read_int(v, "port", out.port, {0, 65535}, faults));
  out.api_key_file = read_text(v, "api-key-file", "");
  out.stall_timeout_s = read_seconds(v, "stall-timeout", out.stall_timeout_s, 0.1, faults);
  out.heartbeat_timeout_s = read_seconds(v, "heartbeat-timeout", out.heartbeat_timeout_s, 1.5, faults);
  out.request_timeout_s = read_seconds(v, "request-timeout", out.request_timeout_s, 0, faults);
  out.drain_timeout_s = read_seconds(v, "drain-timeout", out.drain_timeout_s, 0, faults);
  out.max_restarts = static_cast<int32_t>(read_int(v, "max-restarts", out.max_restarts, {0, 1000}, faults));
  out.dry_run = read_flag(v, "dry-run");
  return out;
}

RankTransport read_rank_transport(const OptionValues& v, RankTransport fallback, Faults& faults) {
  return static_cast<RankTransport>(
      read_choice(v, "transport", {"gloo", "local"}, static_cast<int>(fallback), faults));
}

std::string layout_name(const LayoutOptions& layout) {
  return fmt::format("tp={},cp={}", layout.tp, layout.cp);
}

std::vector<std::string> layout_flags(const LayoutOptions& layout) {
  constexpr std::string_view kStrategies[] = {"auto", "pass_kv", "pass_q", "auto"};
  std::vector<std::string> flags{
      "--layout",       layout_name(layout),
      "--kv",           layout.kv_mode == KvMode::kStriped ? "striped" : "replicated",
      "--interleave",   std::to_string(layout.interleave),
      "--strategy",     std::string(kStrategies[static_cast<size_t>(layout.strategy)]),
      "--threads",      std::to_string(layout.threads),
      "--dtype",        layout.dtype ? std::string(dtype_name(*layout.dtype)) : "auto",
      "--kv-type",      std::string(dtype_name(layout.kv_type)),
      "--kv-memory",    layout.kv_memory ? std::to_string(layout.kv_memory) : "auto",
      "--max-batch",    std::to_string(layout.max_batch),
      "--chunk-tokens", std::to_string(layout.chunk_tokens)};
  flags.insert(flags.end(), {"--comm-timeout",
                             fmt::format("{}", static_cast<double>(layout.comm_timeout.count()) / 1000)});
  if (layout.page_tokens) flags.insert(flags.end(), {"--page-tokens", std::to_string(layout.page_tokens)});
  if (layout.context) flags.insert(flags.end(), {"--context", std::to_string(layout.context)});
  if (!layout.rank_shares.empty()) {
    flags.insert(flags.end(), {"--rank-shares", fmt::format("{}", fmt::join(layout.rank_shares, ","))});
  }
  return flags;
}

}  // namespace lariat
