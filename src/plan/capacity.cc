#include "plan/capacity.h"

#include <algorithm>
#include <limits>

namespace lariat {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kPagesMost = int64_t{1} << 26;  // the allocator's bound
constexpr int64_t kContextMost = std::numeric_limits<int32_t>::max() / 2;

int64_t times(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? kMost : out;
}

int64_t plus(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? kMost : out;
}

int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 1 << 20) return fmt::format("{} bytes", bytes);
  if (bytes < 1 << 30) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// Pages that `pool_bytes` hold on every rank.
int64_t pages_in(const Capacity& c, int64_t pool_bytes) {
  int64_t pages = kPagesMost;
  for (const RankCapacity& rank : c.ranks)
    pages = std::min(pages, std::max<int64_t>(pool_bytes, 0) / rank.page_bytes);
  return pages;
}

// Pages that fit beside weights and workspace on every rank; kPagesMost where memory is not known.
int64_t pages_that_fit(const CapacityRequest& r, const Capacity& c) {
  int64_t pages = kPagesMost;
  for (size_t i = 0; i < r.ranks.size(); ++i) {
    if (r.ranks[i].memory_bytes <= 0) continue;
    const int64_t taken = plus(c.ranks[i].weights_bytes, c.ranks[i].workspace_bytes);
    const int64_t left =
        std::max<int64_t>(r.ranks[i].memory_bytes - std::min(taken, r.ranks[i].memory_bytes), 0);
    pages = std::min(pages, left / c.ranks[i].page_bytes);
  }
  return pages;
}

// Refuses what is out of bounds, and leaves in `r` the nearest that is not, by which the rest is judged.
void check_settings(CapacityRequest& r, Capacity& c) {
  const auto refuse = [&](std::string setting, std::string reason, std::string nearest) {
    c.refusals.push_back({std::move(setting), std::move(reason), std::move(nearest)});
  };
  const int64_t model_context = std::min(r.model_context, kContextMost);
  if (r.context < 0 || r.context > model_context)
    refuse("context", fmt::format("{} tokens; the model is made for 1 to {}", r.context, model_context),
           std::to_string(r.context < 0 ? 1 : model_context));
  if (!c.refusals.empty()) r.context = 0;
  if (r.page_tokens < 1 || r.page_tokens > Placement::kPeriodMax)
    refuse("page-tokens", fmt::format("{} tokens a page; 1 to {}", r.page_tokens, Placement::kPeriodMax),
           std::to_string(std::clamp<int64_t>(r.page_tokens, 1, Placement::kPeriodMax)));
  if (r.max_batch < 1) refuse("max-batch", fmt::format("{} rows", r.max_batch), "1");
  r.page_tokens = std::clamp<int64_t>(r.page_tokens, 1, Placement::kPeriodMax);
  r.max_batch = std::max<int64_t>(r.max_batch, 1);
}

void fill_ranks(const CapacityRequest& r, Capacity& c) {
  c.page_tokens = r.placement->round_page_tokens(static_cast<int32_t>(r.page_tokens));
  for (size_t i = 0; i < r.ranks.size(); ++i) {
    const int32_t slots = r.placement->page_slots(r.stripes[i], static_cast<int32_t>(c.page_tokens));
    RankCapacity rank;
    rank.weights_bytes = r.ranks[i].weights_bytes;
    rank.workspace_bytes = r.ranks[i].workspace_bytes;
    rank.page_bytes = r.kv.page_bytes(slots);
    rank.kv_bytes_per_token = divide_up(times(r.kv.bytes_per_token(), slots), c.page_tokens);
    c.ranks.push_back(rank);
  }
}

void size_pool(const CapacityRequest& r, Capacity& c) {
  const int64_t fit = pages_that_fit(r, c);
  const int64_t asked = r.context > 0 ? r.context : std::min(r.model_context, kContextMost);
  c.context_asked = asked;
  const int64_t one_row = divide_up(asked, c.page_tokens);
  const int64_t held = fit * c.page_tokens;  // tokens that memory can hold
  if (r.kv_memory_bytes >= 0) {
    c.pages_total = pages_in(c, r.kv_memory_bytes);
    c.context = asked;
    const auto largest = std::max_element(c.ranks.begin(), c.ranks.end(), [](const auto& a, const auto& b) {
      return a.page_bytes < b.page_bytes;
    });
    if (c.pages_total == 0)
      c.refusals.push_back(
          {"kv-memory",
           fmt::format("{} hold no page of {} tokens, which takes {}", bytes_text(r.kv_memory_bytes),
                       c.page_tokens, bytes_text(largest->page_bytes)),
           std::to_string(largest->page_bytes)});
    else if (c.pages_total > fit)
      c.refusals.push_back({"kv-memory",
                            fmt::format("{} a rank beside weights and workspace; {} tokens fit",
                                        bytes_text(r.kv_memory_bytes), held),
                            std::to_string(times(fit, largest->page_bytes))});
    return;
  }
  c.pages_total = std::min({fit, times(one_row, r.max_batch), kPagesMost});
  c.context = r.context > 0 ? asked : std::min(asked, held);
  if (r.context > 0 && one_row > fit)
    c.refusals.push_back({"context",
                          fmt::format("K and V of {} tokens do not fit; {} tokens do", asked, held),
                          std::to_string(held)});
  else if (c.pages_total == 0)
    c.refusals.push_back({"kv-memory", "no memory is left for K and V beside weights and workspace", ""});
}

void sum_up(const CapacityRequest& r, Capacity& c) {
  for (size_t i = 0; i < c.ranks.size(); ++i) {
    RankCapacity& rank = c.ranks[i];
    rank.kv_bytes = times(rank.page_bytes, c.pages_total);
    rank.total_bytes = plus(plus(rank.weights_bytes, rank.workspace_bytes), rank.kv_bytes);
    const int64_t least = plus(plus(rank.weights_bytes, rank.workspace_bytes), rank.page_bytes);
    if (r.ranks[i].memory_bytes > 0 && least > r.ranks[i].memory_bytes)
      c.refusals.push_back({"memory",
                            fmt::format("rank {} has {}; weights take {}, workspace {}, a page {}", i,
                                        bytes_text(r.ranks[i].memory_bytes), bytes_text(rank.weights_bytes),
                                        bytes_text(rank.workspace_bytes), bytes_text(rank.page_bytes)),
                            std::to_string(least)});
  }
  c.max_context = std::min(c.context, c.pages_total * c.page_tokens);
  if (c.max_context > 0)
    c.max_concurrency = std::min(r.max_batch, c.pages_total / divide_up(c.max_context, c.page_tokens));
}

}  // namespace

int64_t KvShape::bytes_per_token() const {
  return times(times(times(layers, kv_heads), plus(k_dim, v_dim)), element_bytes);
}

int64_t KvShape::page_bytes(int64_t slots) const {
  return times(bytes_per_token(), times(divide_up(slots, slot_block), slot_block));
}

Capacity capacity(const CapacityRequest& request) {
  LARIAT_CHECK(request.placement.has_value() && !request.ranks.empty() &&
                   request.stripes.size() == request.ranks.size(),
               "{} ranks, {} stripes", request.ranks.size(), request.stripes.size());
  LARIAT_CHECK(request.model_context >= 1 && request.kv.bytes_per_token() >= 1 && request.kv.slot_block >= 1,
               "a model of context {} with {} KV bytes a token", request.model_context,
               request.kv.bytes_per_token());
  Capacity c;
  CapacityRequest sound = request;
  check_settings(sound, c);
  fill_ranks(sound, c);
  size_pool(sound, c);
  sum_up(sound, c);
  return c;
}

int64_t kv_bytes_of_context(const Capacity& c) {
  int64_t bytes = 0;
  for (const RankCapacity& rank : c.ranks)
    bytes = std::max(bytes, times(rank.page_bytes, divide_up(c.context_asked, c.page_tokens)));
  return bytes;
}

}  // namespace lariat
