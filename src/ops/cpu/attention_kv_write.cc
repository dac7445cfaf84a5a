// Stores new tokens' K (transposed into its block) and V.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/attention.h"

namespace lariat {
namespace {

struct StoreF32 {
  using Type = float;
  static float from(float x) { return x; }
};
struct StoreBf16 {
  using Type = Bf16;
  static Bf16 from(float x) { return f32_to_bf16(x); }
};
struct StoreF16 {
  using Type = F16;
  static F16 from(float x) { return f32_to_f16(x); }
};

template <class Store>
void write_token(const KvWriteArgs& args, int64_t i) {
  using T = typename Store::Type;
  const KvLayout& layout = args.kv.layout;
  const int64_t slot = args.slots[i];
  const int64_t page = slot / layout.slots;
  LARIAT_CHECK(page < args.kv.pages_count, "slot {} lies behind the row's {} pages", slot,
               args.kv.pages_count);
  T* const base = reinterpret_cast<T*>(args.kv.base + args.kv.pages[page].get() * args.kv.page_stride);
  const int in_page = static_cast<int>(slot % layout.slots);
  const int block = in_page / kKvBlock;
  const int lane = in_page % kKvBlock;
  for (int h = 0; h < layout.kv_heads; ++h) {
    const float* k = args.k + i * args.k_stride + int64_t{h} * layout.k_dim;
    const float* v = args.v + i * args.v_stride + int64_t{h} * layout.v_dim;
    T* k_to = base + layout.k_offset(h, block) + lane;
    T* v_to = base + layout.v_offset(h, block) + int64_t{lane} * layout.v_dim;
    for (int64_t d = 0; d < layout.k_dim; ++d) k_to[d * kKvBlock] = Store::from(k[d]);
    for (int64_t d = 0; d < layout.v_dim; ++d) v_to[d] = Store::from(v[d]);
  }
}

void write_tokens(const KvWriteArgs& args, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) {
    if (args.slots[i] < 0) continue;
    switch (args.kv.layout.dtype) {
      case DType::kBF16:
        write_token<StoreBf16>(args, i);
        break;
      case DType::kF16:
        write_token<StoreF16>(args, i);
        break;
      default:
        write_token<StoreF32>(args, i);
        break;
    }
  }
}

}  // namespace

void kv_write(Stream& stream, std::span<const KvWriteArgs> rows) {
  // Tasks of at most 16 tokens over all rows, numbered through.
  std::vector<int64_t> first_task{0};
  for (const KvWriteArgs& row : rows) {
    const DType dtype = row.kv.layout.dtype;
    LARIAT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16, "KV of dtype {}",
                 dtype_name(dtype));
    LARIAT_CHECK(row.n >= 0 && row.kv.layout.slots > 0, "n {}, slots {}", row.n, row.kv.layout.slots);
    first_task.push_back(first_task.back() + (row.n + kKvBlock - 1) / kKvBlock);
  }
  stream.pool().parallel_for(first_task.back(), [&](int64_t task, int) {
    const auto next = std::upper_bound(first_task.begin(), first_task.end(), task);
    const auto row = static_cast<size_t>(next - first_task.begin()) - 1;
    const int64_t first = (task - first_task[row]) * kKvBlock;
    write_tokens(rows[row], first, std::min(rows[row].n, first + kKvBlock));
  });
}

}  // namespace lariat
