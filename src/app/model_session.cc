#include "app/model_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "app/host_info.h"
#include "base/log.h"
#include "model/required_tensors.h"
#include "models/embedded.h"
#include "plan/layout.h"
#include "weights/fingerprint.h"

namespace lariat {

Result<ModelFiles> open_files(const ModelOptions& options, std::optional<DType> dtype) {
  constexpr uint64_t kRandomSeed = 1;
  if (!options.random_weights.empty()) return random_model(options.random_weights, kRandomSeed, dtype);
  return resolve_model(options.model, {.dirs = options.model_dirs, .embedded = embedded_models()});
}

Result<OpenModel> open_model(const ModelOptions& options, std::optional<DType> dtype) {
  OpenModel model;
  LARIAT_ASSIGN(model.files, open_files(options, dtype));
  LARIAT_ASSIGN(model.source, open_weights(model.files, &model.files.notes));
  for (const std::string& note : model.files.notes) log_info("{}: {}", model.files.id, note);
  return model;
}

WeightsId weights_id(const OpenModel& model) {
  return weights_fingerprint(*model.source, required_tensors(model.files.config));
}

namespace {

// A pass is as long as products and attention gain from it; a longer step runs as several passes.
constexpr int64_t kPassTokensMax = 512;
// Of the memory that is free now, what the ranks of this machine may take together.
constexpr double kMemoryShare = 0.9;
// Without --kv-memory, rows shorter than the context share at least this many tokens of KV.
constexpr int64_t kAutoPoolTokens = 32768;

// Some 64 slots a rank, a multiple of the block in which slots are stored on every rank.
int64_t default_page_tokens(const Placement& placement) {
  constexpr int64_t kSlotsWanted = 64;
  const int64_t unit = int64_t{placement.period()} * (kKvBlock / std::gcd(kKvBlock, placement.interleave()));
  const int64_t wanted = kSlotsWanted * placement.stripes();
  return unit * std::max<int64_t>(1, (wanted + unit / 2) / unit);
}

int64_t pass_tokens(const LayoutOptions& layout) {
  if (layout.chunk_tokens == 0) return kPassTokensMax;
  return std::min<int64_t>(layout.chunk_tokens + layout.max_batch, kPassTokensMax);
}

// Blocks and partials that a rank of many holds beside its own K/V.
int64_t exchange_bytes(const LayoutOptions& options, const DecoderShard& shard, const LayoutShape& shape,
                       const CapacityRequest& request) {
  const int64_t page_tokens = request.placement->round_page_tokens(static_cast<int32_t>(request.page_tokens));
  return stripe_workspace_bytes({.members = options.cp,
                                 .duplicates = shape.duplicates,
                                 .replicated = options.replicated(),
                                 .heads = static_cast<int>(shard.heads.count),
                                 .layout = {.dtype = options.kv_type,
                                            .kv_heads = static_cast<int>(request.kv.kv_heads),
                                            .k_dim = static_cast<int>(request.kv.k_dim),
                                            .v_dim = static_cast<int>(request.kv.v_dim),
                                            .slots = static_cast<int>(page_tokens)},
                                 .tokens_max = pass_tokens(options)});
}

RankMemory rank_memory(const OpenModel& model, const LayoutOptions& layout, const DecoderShard& shard) {
  const DecoderConfig& c = model.files.config;
  const int64_t t = pass_tokens(layout);
  const int64_t k_max = std::max({c.hidden, shard.heads.count * c.head_dim, shard.ffn.count});
  RankMemory m;
  m.memory_bytes = static_cast<int64_t>(kMemoryShare * static_cast<double>(memory_available_bytes())) /
                   (int64_t{layout.tp} * layout.cp);
  m.weights_bytes = DecoderWeights::bytes(c, shard, *model.source, layout.dtype);
  m.workspace_bytes = DecoderWorkspace::bytes(c, shard, {.tokens_max = t, .logit_rows_max = kLogitRowsMax}) +
                      matmul_workspace_bytes(layout.threads, t, k_max) +
                      attention_workspace_bytes(layout.threads, static_cast<int>(shard.heads.count),
                                                static_cast<int>(shard.kv_heads.count),
                                                static_cast<int>(c.head_dim), static_cast<int>(c.head_dim));
  return m;
}

// What `--kv-memory auto` asks for: the whole context once, or several short rows; -1 leaves it to what
// memory allows.
int64_t auto_kv_bytes(const CapacityRequest& request) {
  const int64_t context =
      request.context > 0 ? std::min(request.context, request.model_context) : request.model_context;
  const int64_t tokens = std::max(context, std::min(context * request.max_batch, kAutoPoolTokens));
  // Whole pages, of the rank with the largest share; each row may leave its last one half empty.
  const int32_t page_tokens = request.placement->round_page_tokens(static_cast<int32_t>(request.page_tokens));
  const int64_t pages = (tokens + page_tokens - 1) / page_tokens + request.max_batch;
  int64_t bytes = 0;
  for (const StripeIndex stripe : request.stripes) {
    bytes =
        std::max(bytes, pages * request.kv.page_bytes(request.placement->page_slots(stripe, page_tokens)));
  }
  for (const RankMemory& rank : request.ranks) {
    if (rank.memory_bytes > 0 && bytes > rank.memory_bytes - rank.weights_bytes - rank.workspace_bytes)
      return -1;
  }
  return bytes;
}

// Of options that can be placed.
Result<Capacity> placed_capacity(const OpenModel& model, const LayoutOptions& options) {
  const DecoderConfig& c = model.files.config;
  const Layout layout = options.layout();
  const LayoutShape shape = shape_of(c, layout);
  CapacityRequest request;
  // Replicated KV takes every position on every rank.
  if (options.replicated()) {
    LARIAT_ASSIGN(request.placement, Placement::equal(1, 1));
  } else {
    LARIAT_ASSIGN(request.placement, stripe_placement(options, shape));
  }
  request.kv = {.layers = c.layers,
                .kv_heads = shape.kv_heads,
                .k_dim = c.head_dim,
                .v_dim = c.head_dim,
                .element_bytes = static_cast<int64_t>(dtype_size(options.kv_type)),
                .slot_block = kKvBlock};
  request.model_context = c.max_position;
  request.context = options.context;
  request.page_tokens =
      options.page_tokens > 0 ? options.page_tokens : default_page_tokens(*request.placement);
  request.max_batch = options.max_batch;
  for (int32_t r = 0; r < layout.world(); ++r) {
    const DecoderShard shard = shard_of(c, layout.tp, r % layout.tp);
    RankMemory memory = rank_memory(model, options, shard);
    memory.workspace_bytes += exchange_bytes(options, shard, shape, request);
    request.ranks.push_back(memory);
    request.stripes.push_back(options.replicated() ? StripeIndex(0) : stripe_of(layout, shape, Rank(r)));
  }
  request.kv_memory_bytes = options.kv_memory > 0 ? options.kv_memory : auto_kv_bytes(request);
  return capacity(request);
}

}  // namespace

Result<Capacity> plan_capacity(const OpenModel& model, const LayoutOptions& options) {
  std::vector<Refusal> unplaced;
  const LayoutOptions placed = placeable(model.files.config, options, unplaced);
  LARIAT_ASSIGN(Capacity c, placed_capacity(model, placed));
  std::vector<Refusal> all = unplaced;
  for (Refusal& r : contradictions(options)) all.push_back(std::move(r));
  for (Refusal& r : c.refusals) {
    if (!unplaced.empty()) r.reason += fmt::format(" (with {})", layout_name(placed));
    all.push_back(std::move(r));
  }
  // Of ranks that cannot be placed there is nothing else to say.
  if (!unplaced.empty()) c = {};
  c.refusals = std::move(all);
  return c;
}

Status check_fits(const Capacity& capacity) {
  if (capacity.refusals.empty()) return Ok{};
  bool memory_only = true;
  std::string text;
  for (const Refusal& r : capacity.refusals) {
    memory_only =
        memory_only && (r.setting == "memory" || r.setting == "kv-memory" || r.setting == "context");
    text += fmt::format("{}--{}: {}; nearest that works: {}", text.empty() ? "" : "\n", r.setting, r.reason,
                        r.nearest);
  }
  return make_error(memory_only ? Errc::kResourceExhausted : Errc::kInvalidArgument, text);
}

std::string lowered_context(const LayoutOptions& options, const Capacity& c) {
  if (c.max_context >= c.context_asked) return "";
  const std::string wanted = options.context > 0
                                 ? fmt::format("--context {}", c.context_asked)
                                 : fmt::format("the model's context of {} tokens", c.context_asked);
  const int64_t bytes = kv_bytes_of_context(c);
  const std::string help = options.kv_memory > 0
                               ? fmt::format("--kv-memory {} would hold it", bytes)
                               : fmt::format("it takes --kv-memory {} a rank, more than is free", bytes);
  return fmt::format("{} is lowered to the {} tokens that the KV memory holds; {}", wanted, c.max_context,
                     help);
}

ResolvedPlan resolved_plan(const LayoutOptions& layout, const Capacity& c) {
  ResolvedPlan plan;
  plan.context = static_cast<int32_t>(c.context);
  plan.page_tokens = static_cast<int32_t>(c.page_tokens);
  plan.pages_total = static_cast<int32_t>(c.pages_total);
  plan.pass_tokens = static_cast<int32_t>(pass_tokens(layout));
  for (const RankCapacity& rank : c.ranks) plan.page_bytes.push_back(rank.page_bytes);
  return plan;
}

Result<ResolvedPlan> resolve_plan(const OpenModel& model, const LayoutOptions& layout) {
  LARIAT_ASSIGN(const Capacity c, plan_capacity(model, layout));
  LARIAT_RETURN_IF_ERROR(check_fits(c));
  return resolved_plan(layout, c);
}

LayoutOptions settled_layout(const LayoutOptions& layout, const ResolvedPlan& plan) {
  LayoutOptions settled = layout;
  settled.context = plan.context;
  settled.page_tokens = plan.page_tokens;
  // A pool of so many bytes on every rank: the rank with the largest share says how many those are.
  settled.kv_memory = 0;
  for (const int64_t page_bytes : plan.page_bytes)
    settled.kv_memory = std::max(settled.kv_memory, plan.pages_total * page_bytes);
  return settled;
}

Result<ScheduleConstants> schedule_constants(const DecoderConfig& c, const LayoutOptions& options) {
  const Layout layout = options.layout();
  const LayoutShape shape = shape_of(c, layout);
  LARIAT_ASSIGN(Placement placement, stripe_placement(options, shape));
  ScheduleConstants constants{.layout = layout,
                              .placement = std::move(placement),
                              .heads = static_cast<int32_t>(c.heads),
                              .kv_heads = static_cast<int32_t>(c.kv_heads),
                              .k_dim = static_cast<int32_t>(c.head_dim),
                              .v_dim = static_cast<int32_t>(c.head_dim),
                              .hidden = c.hidden,
                              .vocab = c.vocab,
                              .kv_element_bytes = static_cast<int32_t>(dtype_size(options.kv_type)),
                              .windows = {},
                              .replicated = options.replicated()};
  for (const LayerMask& mask : c.masks) constants.windows.push_back(static_cast<int32_t>(mask.window));
  return constants;
}

Result<RankPlace> rank_place(const OpenModel& model, const LayoutOptions& options, Rank rank,
                             RankGroups* groups) {
  LARIAT_ASSIGN(ScheduleConstants constants, schedule_constants(model.files.config, options));
  RankPlace place{.rank = rank,
                  .constants = std::move(constants),
                  .groups = groups,
                  .comm_timeout = options.comm_timeout};
  return place;
}

Result<std::unique_ptr<ModelExecutor>> make_executor(const OpenModel& model, const LayoutOptions& options,
                                                     const ResolvedPlan& plan, ExecutorParts parts) {
  TensorParallel tp;
  if (options.tp > 1) tp = {.group = parts.place.groups->tp.get(), .timeout = options.comm_timeout};
  auto decoder = std::make_shared<const Decoder>(model.files.config, std::move(parts.weights), tp);
  ModelExecutorOptions executor{.kv_type = options.kv_type,
                                .page_tokens = plan.page_tokens,
                                .pages_total = plan.pages_total,
                                .pass_tokens = plan.pass_tokens,
                                .poison = parts.poison};
  std::copy(parts.id.begin(), parts.id.end(), executor.weights_hash);
  return ModelExecutor::create(std::move(decoder), std::move(parts.stream), std::move(parts.place), executor);
}

}  // namespace lariat
