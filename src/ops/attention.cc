// Checks an attention call and cuts it into tasks: whole query tiles, or single key splits where tiles are
// few.
#include "ops/attention.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/cpu/attention_kernel.h"

namespace lariat {
namespace {

using cpu::SlotRange;
using cpu::TileState;
using cpu::TileTask;

// Split partials of one wave take at most this much, unless fewer than two splits a thread would fit.
constexpr int64_t kWaveBytes = int64_t{1} << 20;

void check_row(const AttentionParams& params, const AttentionRow& row) {
  const KvLayout& layout = row.kv.layout;
  LARIAT_CHECK(layout.kv_heads > 0 && params.heads > 0 && params.heads % layout.kv_heads == 0,
               "{} query heads over {} kv heads", params.heads, layout.kv_heads);
  LARIAT_CHECK(layout.k_dim > 0 && layout.v_dim > 0 && layout.slots > 0, "layout k_dim {} v_dim {} slots {}",
               layout.k_dim, layout.v_dim, layout.slots);
  LARIAT_CHECK(layout.dtype == DType::kF32 || layout.dtype == DType::kBF16 || layout.dtype == DType::kF16,
               "KV of dtype {}", dtype_name(layout.dtype));
  LARIAT_CHECK(params.mask.kind != MaskKind::kWindow || params.mask.window > 0, "window {}",
               params.mask.window);
  LARIAT_CHECK(row.slot_begin >= 0 && row.slot_begin % kKeySplit == 0, "slot_begin {} splits a key split",
               row.slot_begin);
  LARIAT_CHECK(!row.accumulate || row.out.lse, "accumulate needs the lse");
  LARIAT_CHECK(row.slot_end <= row.kv.pages_count * layout.slots, "slot_end {} behind {} pages of {} slots",
               row.slot_end, row.kv.pages_count, layout.slots);
}

struct Work {
  TileTask task;     // slots: those the tile's rows see, lo rounded down to a split
  int64_t cost = 0;  // rows * slots
  int64_t splits() const { return (task.slots.hi - task.slots.lo + kKeySplit - 1) / kKeySplit; }
};

// Tiles of one row for every KV head; positions never fall, so the first and the last token bound them all.
void add_tiles(const AttentionParams& params, const AttentionRow& row, std::vector<Work>& out) {
  const int kv_heads = row.kv.layout.kv_heads;
  const int group = params.heads / kv_heads;
  const int64_t tile_tokens = std::max(1, cpu::kQueryRows / group);
  for (int64_t t0 = 0; t0 < row.t; t0 += tile_tokens) {
    const int64_t tokens = std::min(tile_tokens, row.t - t0);
    const SlotRange first = cpu::visible_slots(params.mask, row, row.q_pos[t0]);
    const SlotRange last = cpu::visible_slots(params.mask, row, row.q_pos[t0 + tokens - 1]);
    SlotRange seen{std::min(first.lo, last.lo) / kKeySplit * kKeySplit, std::max(first.hi, last.hi)};
    if (seen.empty()) seen = SlotRange{row.slot_begin, row.slot_begin};
    for (int g = 0; g < kv_heads; ++g)
      out.push_back({TileTask{&row, &params, g, t0, tokens, seen}, tokens * group * (seen.hi - seen.lo)});
  }
}

// One key split of a tile whose splits are computed apart.
struct Item {
  const Work* work = nullptr;
  int64_t split = 0;
  TileTask task() const {
    TileTask t = work->task;
    t.slots.lo += split * kKeySplit;
    t.slots.hi = std::min(t.slots.hi, t.slots.lo + kKeySplit);
    return t;
  }
};

int64_t task_rows(const TileTask& task) {
  return task.tokens * (task.params->heads / task.row->kv.layout.kv_heads);
}

// Runs `streamed` whole and `items` in waves; each wave's split partials are folded in ascending order, by
// the same fold that attend_tile uses inside a task: the bits do not tell which way a tile went.
class Run {
 public:
  Run(Stream& stream, const AttentionParams& params, const KvLayout& layout)
      : stream_(stream), v_dim_(layout.v_dim), group_(params.heads / layout.kv_heads) {
    scratch_bytes_ = cpu::tile_scratch_bytes(group_, layout.k_dim, v_dim_);
    tile_floats_ = cpu::state_floats(cpu::tile_rows_max(group_), v_dim_);
  }

  void streamed(const std::vector<const Work*>& works) {
    stream_.pool().parallel_for(static_cast<int64_t>(works.size()), [&](int64_t i, int thread) {
      const TileTask& task = works[static_cast<size_t>(i)]->task;
      std::byte* scratch = stream_.scratch(thread, thread_bytes());
      const TileState state = cpu::state_at(reinterpret_cast<float*>(scratch), task_rows(task), v_dim_);
      cpu::attend_tile(task, scratch + tile_floats_ * sizeof(float), state);
      cpu::finish_tile(task, state);
    });
  }

  void split(const std::vector<const Work*>& works) {
    if (works.empty()) return;
    int64_t rows = 0;
    std::vector<Item> items;
    for (const Work* w : works) {
      rows = std::max(rows, task_rows(w->task));
      for (int64_t s = 0; s < w->splits(); ++s) items.push_back({w, s});
    }
    const int64_t item_floats = cpu::state_floats(rows, v_dim_);
    const int64_t wave = std::max<int64_t>(kWaveBytes / (item_floats * 4), 2 * stream_.threads());
    // One more state carries the tile that a wave's end cuts.
    float* const base =
        reinterpret_cast<float*>(stream_.shared_scratch(static_cast<size_t>((wave + 1) * item_floats * 4)));
    const TileState carry = cpu::state_at(base + wave * item_floats, rows, v_dim_);
    for (int64_t first = 0; first < static_cast<int64_t>(items.size()); first += wave) {
      const std::span<const Item> part = std::span(items).subspan(
          static_cast<size_t>(first),
          static_cast<size_t>(std::min(wave, static_cast<int64_t>(items.size()) - first)));
      stream_.pool().parallel_for(static_cast<int64_t>(part.size()), [&](int64_t i, int thread) {
        TileTask task = part[static_cast<size_t>(i)].task();
        // Threads take items in turn, so this one's next is most often as far ahead as there are threads.
        TileTask next;
        if (const int64_t after = first + i + stream_.threads(); after < static_cast<int64_t>(items.size())) {
          next = items[static_cast<size_t>(after)].task();
          task.next = &next;
        }
        std::byte* scratch = stream_.scratch(thread, thread_bytes());
        cpu::attend_tile(task, scratch + tile_floats_ * sizeof(float),
                         cpu::state_at(base + i * item_floats, task_rows(task), v_dim_));
      });
      fold(part, base, item_floats, carry);
    }
  }

 private:
  size_t thread_bytes() const { return static_cast<size_t>(scratch_bytes_ + tile_floats_ * 4); }

  void fold(std::span<const Item> part, float* base, int64_t item_floats, const TileState& carry) {
    for (size_t i = 0; i < part.size();) {
      const Work& work = *part[i].work;
      const int64_t rows = task_rows(work.task);
      const TileState head = cpu::state_at(base + static_cast<int64_t>(i) * item_floats, rows, v_dim_);
      TileState into = head;
      if (part[i].split != 0) {
        into = carry;
        cpu::fold_state(into, head, rows, v_dim_);
      }
      int64_t done = part[i].split + 1;
      for (++i; i < part.size() && part[i].work == &work; ++i, ++done)
        cpu::fold_state(into, cpu::state_at(base + static_cast<int64_t>(i) * item_floats, rows, v_dim_), rows,
                        v_dim_);
      if (done == work.splits()) {
        cpu::finish_tile(work.task, into);
      } else if (into.l != carry.l) {
        std::fill_n(carry.l, rows, 0.0f);
        cpu::fold_state(carry, into, rows, v_dim_);
      }
    }
  }

  Stream& stream_;
  int v_dim_;
  int group_;
  int64_t scratch_bytes_;
  int64_t tile_floats_;
};

}  // namespace

void attention(Stream& stream, const AttentionParams& params, std::span<const AttentionRow> rows) {
  std::vector<Work> works;
  const KvLayout* layout = nullptr;
  for (const AttentionRow& row : rows) {
    check_row(params, row);
    if (!layout) layout = &row.kv.layout;
    LARIAT_CHECK(row.kv.layout.k_dim == layout->k_dim && row.kv.layout.v_dim == layout->v_dim &&
                     row.kv.layout.kv_heads == layout->kv_heads,
                 "rows of one call differ in their heads");
    add_tiles(params, row, works);
  }
  if (works.empty()) return;
  int64_t total = 0;
  for (const Work& w : works) total += w.cost;
  // A tile that is more than a quarter of a thread's share goes split by split; the rest whole, the longest
  // first.
  const int64_t whole_max = stream.threads() == 1 ? total : total / (4 * stream.threads());
  std::vector<const Work*> streamed;
  std::vector<const Work*> split;
  for (const Work& w : works) (w.cost <= whole_max || w.splits() <= 1 ? streamed : split).push_back(&w);
  std::sort(streamed.begin(), streamed.end(), [](const Work* a, const Work* b) { return a->cost > b->cost; });
  Run run(stream, params, *layout);
  run.split(split);
  run.streamed(streamed);
}

int64_t attention_workspace_bytes(int threads, int heads, int kv_heads, int k_dim, int v_dim) {
  const int group = heads / kv_heads;
  const int64_t tile = cpu::state_floats(cpu::tile_rows_max(group), v_dim) * 4;
  const int64_t wave = std::max<int64_t>(kWaveBytes, tile * 2 * threads) + tile;
  return threads * (cpu::tile_scratch_bytes(group, k_dim, v_dim) + tile) + (threads > 1 ? wave : 0);
}

void merge_partial(Stream& stream, PartialView a, PartialView b, int64_t rows, int v_dim) {
  LARIAT_CHECK(rows >= 0 && v_dim > 0, "rows {}, v_dim {}", rows, v_dim);
  constexpr int64_t kRowsPerTask = 256;
  stream.pool().parallel_for((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
    const int64_t first = task * kRowsPerTask;
    cpu::merge_rows({a.out + first * v_dim, a.lse + first}, {b.out + first * v_dim, b.lse + first},
                    std::min(kRowsPerTask, rows - first), v_dim);
  });
}

}  // namespace lariat
