// A step's plan: which rows move what, and the memory for it. The layer itself: distributed_layer.cc.
#include "attention/distributed_attention.h"

#include <fmt/core.h>

#include <algorithm>

namespace lariat {
namespace {

Status grow(Buffer& buffer, int64_t bytes, const char* what) {
  if (buffer.size() >= static_cast<size_t>(bytes)) return Ok{};
  buffer = Buffer();
  auto grown = Buffer::allocate(static_cast<size_t>(bytes));
  if (!grown.ok()) return grown.error().in(what);
  buffer = std::move(grown).value();
  return Ok{};
}

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

}  // namespace

DistributedAttention::DistributedAttention(const AttentionConfig& config, StripeShape shape)
    : config_(config),
      shape_(std::move(shape)),
      block_((std::max<int64_t>(1, config.comm.ring_block) + kKvBlock - 1) / kKvBlock * kKvBlock) {
  for (const LayerCache& layer : config_.layers) {
    const KvLayout& layout = config_.groups[static_cast<size_t>(layer.group)]->config().layout;
    k_dim_max_ = std::max(k_dim_max_, layout.k_dim);
    v_dim_max_ = std::max(v_dim_max_, layout.v_dim);
    const auto same = std::find_if(classes_.begin(), classes_.end(), [&](const LayerClass& c) {
      return c.group == layer.group && c.mask.kind == layer.mask.kind && c.mask.window == layer.mask.window;
    });
    class_of_layer_.push_back(static_cast<size_t>(same - classes_.begin()));
    if (same == classes_.end()) classes_.push_back({layer.group, layer.mask, {}});
  }
}

Status DistributedAttention::check_row(const StepRow& row) const {
  const auto bad = [](std::string message) { return make_error(Errc::kInvalidArgument, std::move(message)); };
  if (row.pages.size() != config_.groups.size())
    return bad(fmt::format("row has page tables for {} cache groups of {}", row.pages.size(),
                           config_.groups.size()));
  if (row.resident < 0 || row.resident > row.length)
    return bad(fmt::format("{} resident tokens of {}", row.resident, row.length));
  if (shape_.replicated != (row.strategy == RowStrategy::kLocal) &&
      !(shape_.replicated && row.strategy == RowStrategy::kPassKv))
    return bad(shape_.replicated ? "replicated K/V is attended by pass_kv, or locally on one rank"
                                 : "a row of striped K/V cannot be attended on one rank alone");
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const KvStore& store = *config_.groups[g];
    const int64_t slots = shape_.stored(shape_.member, row.length);
    const int64_t room = static_cast<int64_t>(row.pages[g].size()) * store.config().layout.slots;
    if (slots > room)
      return bad(fmt::format("sequence of {} needs {} slots, its {} pages have {}", row.length, slots,
                             row.pages[g].size(), room));
    LARIAT_RETURN_IF_ERROR(store.check_table(row.pages[g]));
  }
  return check_new_tokens(row);
}

// Placement decides who computes what; peers count on it.
Status DistributedAttention::check_new_tokens(const StepRow& row) const {
  const bool share = row.strategy == RowStrategy::kPassKv || row.strategy == RowStrategy::kPassQ;
  const int64_t first = share ? shape_.computed(shape_.member, row.resident) : row.resident;
  const int64_t end = share ? shape_.computed(shape_.member, row.length) : row.length;
  bool right = row.n == end - first;
  for (int64_t i = 0; right && i < row.n; ++i) {
    const int32_t want =
        share ? shape_.compute
                    .position(StripeIndex(shape_.member), LocalSlot(static_cast<LocalSlot::rep>(first + i)))
                    .get()
              : static_cast<int32_t>(first + i);
    right = row.positions[i] == want;
  }
  if (right) return Ok{};
  return make_error(Errc::kInvalidArgument,
                    fmt::format("{} new tokens of [{}, {}) are not those that ring member {} computes", row.n,
                                row.resident, row.length, shape_.member));
}

Status DistributedAttention::begin_step(std::span<const StepRow> rows) {
  for (const StepRow& row : rows) LARIAT_RETURN_IF_ERROR(check_row(row));
  rows_.assign(rows.begin(), rows.end());
  slots_.clear();
  first_slot_.clear();
  tokens_ = 0;
  for (const StepRow& row : rows_) {
    tokens_ = std::max(tokens_, row.first + row.n);
    first_slot_.push_back(static_cast<int64_t>(slots_.size()));
    for (int64_t i = 0; i < row.n; ++i) {
      const TokenPos pos(row.positions[i]);
      const bool ours = shape_.store.owner(pos) == shape_.own_stripe();
      slots_.push_back(ours ? shape_.store.local_slot(pos).get() : -1);
    }
  }
  sort_rows();
  plan_classes();
  return take_memory();
}

void DistributedAttention::sort_rows() {
  query_rows_.clear();
  ring_rows_.clear();
  local_rows_.clear();
  context_ = {};
  gather_ = {};
  context_first_.assign(rows_.size(), -1);
  const auto join = [&](Meeting& meeting, size_t row) {
    meeting.rows.push_back(row);
    meeting.first.push_back(meeting.tokens);
    meeting.tokens += rows_[row].n;
  };
  for (size_t r = 0; r < rows_.size(); ++r) {
    switch (rows_[r].strategy) {
      case RowStrategy::kPassQ:
        plan_query_row(r);
        break;
      case RowStrategy::kPassKv:
        ring_rows_.push_back(r);
        if (!splits_heads() || rows_[r].resident == 0) break;
        context_first_[r] = context_.tokens;
        join(context_, r);
        break;
      case RowStrategy::kGather:
        join(gather_, r);
        break;
      case RowStrategy::kLocal:
        local_rows_.push_back(r);
        break;
    }
  }
}

void DistributedAttention::plan_query_row(size_t row) {
  QueryRow q;
  q.row = row;
  const StepRow& step = rows_[row];
  for (int32_t m = 0; m < shape_.members; ++m) {
    q.positions.push_back(shape_.computed_positions(m, step.resident, step.length));
    q.tokens.push_back(static_cast<int64_t>(q.positions.back().size()));
  }
  q.ops = rotate_queries(shape_.member, q.tokens);
  query_rows_.push_back(std::move(q));
}

// What rotates: with striped K/V and one holder of each KV head, all of a row's keys. Where duplicates split
// the heads, its new keys (of pass_q rows too: only what is resident stays), and apart from them the resident
// ones. Replicated: the new ones, which everybody keeps.
void DistributedAttention::plan_classes() {
  const bool apart = splits_heads() || shape_.replicated;
  for (LayerClass& c : classes_) {
    std::vector<RotationItem> items;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const StepRow& row = rows_[r];
      const bool pass_kv = row.strategy == RowStrategy::kPassKv;
      if (pass_kv && !apart) items.push_back(stored_item(shape_, row, r, c.mask, row.length));
      if (pass_kv && splits_heads() && shape_.members > 1 && row.resident > 0)
        items.push_back(stored_item(shape_, row, r, c.mask, row.resident));
      if (apart && (pass_kv || row.strategy == RowStrategy::kPassQ))
        items.push_back(fresh_item(shape_, row, r));
    }
    c.rotation = plan_rotation(shape_, std::move(items), block_);
  }
}

Status DistributedAttention::take_memory() {
  const int32_t blocks = splits_heads() ? shape_.duplicates : 1;
  int64_t own_queries = std::max(context_.tokens, gather_.tokens);
  int64_t passing = 0;  // queries of a pass_q row, of the member that has most
  for (const QueryRow& q : query_rows_) {
    own_queries = std::max(own_queries, rows_[q.row].n);
    passing = std::max(passing, *std::max_element(q.tokens.begin(), q.tokens.end()));
  }
  const int64_t token = config_.heads * k_dim_max_ * kFloat;
  LARIAT_RETURN_IF_ERROR(grow(lse_, std::max<int64_t>(1, tokens_) * config_.heads * kFloat, "attention"));
  LARIAT_RETURN_IF_ERROR(grow(own_queries_, own_queries * token, "queries"));
  LARIAT_RETURN_IF_ERROR(grow(queries_[0], blocks * std::max(own_queries, passing) * token, "queries"));
  const int64_t turning = shape_.members > 1 ? passing : 0;
  const int64_t joined = blocks > 1 ? gather_.tokens : 0;
  LARIAT_RETURN_IF_ERROR(grow(queries_[1], blocks * std::max(turning, joined) * token, "queries"));
  LARIAT_RETURN_IF_ERROR(grow(queries_[2], blocks * turning * token, "queries"));
  for (PartialSet& running : running_)
    LARIAT_RETURN_IF_ERROR(running.reserve(blocks, std::max(passing, joined), config_.heads, v_dim_max_));
  const int32_t gathered = std::max(blocks, shape_.members);
  for (PartialSet* set : {&aside_, &received_}) {
    LARIAT_RETURN_IF_ERROR(
        set->reserve(blocks, std::max(context_.tokens, passing), config_.heads, v_dim_max_));
    LARIAT_RETURN_IF_ERROR(set->reserve(gathered, gather_.tokens, config_.heads, v_dim_max_));
  }
  for (const LayerClass& c : classes_) {
    const KvLayout& layout = config_.groups[static_cast<size_t>(c.group)]->config().layout;
    for (int32_t b = 0; b < (shape_.members > 1 ? kRingBuffers : 1); ++b)
      LARIAT_RETURN_IF_ERROR(grow(blocks_[b], block_bytes(layout)(c.rotation.slots_max), "K/V blocks"));
  }
  return Ok{};
}

int64_t DistributedAttention::workspace_bytes() const {
  size_t bytes = lse_.size() + own_queries_.size();
  for (const Buffer& b : blocks_) bytes += b.size();
  for (const Buffer& q : queries_) bytes += q.size();
  for (const PartialSet* set : {&running_[0], &running_[1], &aside_, &received_})
    bytes += set->reserved_bytes();
  return static_cast<int64_t>(bytes);
}

int64_t stripe_workspace_bytes(const StripeWorkspace& s) {
  if (s.members * s.duplicates == 1) return 0;
  const int64_t blocks = s.replicated ? 1 : s.duplicates;
  const int64_t tokens = std::max<int64_t>(1, s.tokens_max) * s.heads;
  const int64_t query = tokens * s.layout.k_dim * kFloat;
  const int64_t partial = tokens * (s.layout.v_dim + 1) * kFloat;
  const int64_t ring =
      (s.members > 1 ? kRingBuffers : 1) * block_bytes(s.layout)(std::max<int64_t>(1, s.ring_block));
  return tokens * kFloat + query + (s.members > 1 ? 3 : 2) * blocks * query +
         (2 * blocks + 2 * std::max<int64_t>(blocks, s.members)) * partial + ring;
}

}  // namespace lariat
