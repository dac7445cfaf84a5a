// Heads against ranks with real execution, and a row whose numbers go bad among rows that are well.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "app/golden_test_util.h"
#include "app/rank_group_test_util.h"
#include "base/test_processes.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;
using Row = RankGroupUnderTest::Row;
using LogitsByPosition = std::map<int32_t, std::vector<float>>;

OpenModel random_test_model(int heads, int kv_heads, const fs::path& folder) {
  const fs::path file = folder / fmt::format("heads-{}-{}.json", heads, kv_heads);
  std::ofstream(file) << fmt::format(
      R"({{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"head_dim":16,
          "intermediate_size":160,"max_position_embeddings":512,"num_attention_heads":{},
          "num_key_value_heads":{},"num_hidden_layers":2,"rms_norm_eps":1e-6,"rope_theta":10000.0,
          "tie_word_embeddings":false,"vocab_size":301,"hidden_act":"silu","torch_dtype":"float32"}})",
      heads, kv_heads);
  auto opened = open_model({.model = {}, .random_weights = file, .model_dirs = {}}, std::nullopt);
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  return std::move(opened).value();
}

// All logits of 41 tokens in steps of 16, then of nine that are decoded.
LogitsByPosition all_logits(const OpenModel& model, const LayoutOptions& layout) {
  RankGroupUnderTest group(model, layout, 64);
  LogitsByPosition seen;
  Row row{RowId(5), random_ids(11, 41, 301), {}, 0, false};
  const std::vector<int32_t> decoded = random_ids(12, 9, 301);
  const auto take = [&](int32_t chunk) {
    PlanRow r = group.next(row, chunk);
    r.wanted = LogitsWanted::kAll;
    r.logits_first = 0;
    r.logits_count = r.n;
    for (const RowOutcome& o : group.step({std::move(r)}).rows) {
      EXPECT_FALSE(o.failed) << o.message;
      for (const PositionLogits& at : o.logits) seen[at.pos] = at.values;
    }
  };
  while (row.done < 41) take(16);
  row.decoding = true;
  for (const int32_t id : decoded) {
    row.ids.push_back(id);
    take(1);
  }
  EXPECT_EQ(seen.size(), 50u);
  return seen;
}

// C24: each KV head on one rank, on several, and split by position alone.
TEST(RankHeads, AnswerAsOneRank) {
  const test::TempDir dir;
  struct Case {
    int heads, kv_heads;
    std::vector<Layout> layouts;
  };
  for (const Case& c : {Case{8, 4, {{8, 1}, {4, 1}, {8, 2}, {1, 8}}}, Case{8, 2, {{4, 1}, {8, 1}, {1, 4}}},
                        Case{16, 1, {{4, 1}, {16, 1}}}, Case{32, 8, {{1, 5}}}}) {
    const OpenModel model = random_test_model(c.heads, c.kv_heads, dir.path());
    const LogitsByPosition want = all_logits(model, cp(1));
    for (const Layout& at : c.layouts) {
      SCOPED_TRACE(fmt::format("{}/{} heads on {}", c.heads, c.kv_heads, at.text()));
      LayoutOptions layout = cp(at.cp);
      layout.tp = at.tp;
      const LogitsByPosition got = all_logits(model, layout);
      ASSERT_EQ(got.size(), want.size());
      for (const auto& [pos, logits] : want)
        ASSERT_LE(max_difference(got.at(pos), logits), 2e-4) << "position " << pos;
    }
  }
}

// A model whose embedding of one token is NaN.
class SickToken : public TensorSource {
 public:
  static constexpr std::string_view kTensor = "model.embed_tokens.weight";
  SickToken(std::unique_ptr<TensorSource> base, int32_t token) : base_(std::move(base)) {
    const auto view = base_->find(kTensor);
    EXPECT_TRUE(view && view->dtype == DType::kF32);
    const auto* data = static_cast<const float*>(view->data);
    shape_ = view->shape;
    const int64_t width = shape_[1];
    table_.assign(data, data + shape_[0] * width);
    std::fill_n(table_.begin() + token * width, width, std::numeric_limits<float>::quiet_NaN());
  }
  std::optional<ConstView> find(std::string_view name) const override {
    auto view = base_->find(name);
    if (view && name == kTensor) view->data = table_.data();
    return view;
  }
  std::vector<std::string_view> names() const override { return base_->names(); }

 private:
  std::unique_ptr<TensorSource> base_;
  Shape shape_;
  std::vector<float> table_;
};

constexpr int32_t kSick = 77;

std::vector<int32_t> healthy_ids(uint32_t seed, size_t n) {
  std::vector<int32_t> ids = random_ids(seed, n, 512);
  std::replace(ids.begin(), ids.end(), kSick, kSick + 1);
  return ids;
}

// Logits of two healthy rows through prompt and five greedy tokens, and of a third that comes later; with
// `sick`, a row beside them meets the token, and the third takes over its pages.
std::vector<std::vector<float>> neighbours(const OpenModel& model, const LayoutOptions& layout, bool sick) {
  RankGroupUnderTest group(model, layout, 128);
  std::vector<std::vector<float>> seen;
  Row bad{RowId(9), healthy_ids(3, 40), {}, 0, false};
  bad.ids[21] = kSick;
  bool failed = false;
  // Rows of `chunk` new tokens each, together with what is left of the sick one.
  const auto turn = [&](const std::vector<Row*>& rows) {
    std::vector<PlanRow> planned;
    if (sick && !failed) planned.push_back(group.next(bad, 16));
    for (Row* row : rows) {
      planned.push_back(group.next(*row, row->decoding ? 1 : 16));
      planned.back().sampling.banned = {kSick};
      if (planned.back().wanted == LogitsWanted::kNone) continue;
      planned.back().logits_first = planned.back().n - 1;
      planned.back().logits_count = 1;
    }
    const StepOutcome outcome = group.step(std::move(planned));
    for (const RowOutcome& o : outcome.rows) {
      if (o.id == bad.id) {
        failed = o.failed;
        EXPECT_EQ(o.failed, bad.done == 40) << "at " << bad.done;
        continue;
      }
      EXPECT_FALSE(o.failed) << o.message;
      for (const PositionLogits& at : o.logits) seen.push_back(at.values);
      for (Row* row : rows)
        if (row->id == o.id && o.token >= 0) {
          row->ids.push_back(o.token);
          row->decoding = true;
        }
    }
  };
  Row one{RowId(1), healthy_ids(1, 40), {}, 0, false};
  Row two{RowId(2), healthy_ids(2, 40), {}, 0, false};
  for (int step = 0; step < 8; ++step) turn({&one, &two});
  EXPECT_EQ(failed, sick);
  if (sick) group.release(bad);
  Row later{RowId(3), healthy_ids(4, 33), {}, 0, false};
  for (int step = 0; step < 5; ++step) turn({&later});
  EXPECT_EQ(seen.size(), 6u + 6u + 3u);
  return seen;
}

// C23: the row ends with an error, its neighbours keep every bit, and so does who gets its pages.
TEST(RankNan, OneRowsNanIsItsOwn) {
  const fs::path golden = golden_path("llama-gqa");
  if (!fs::exists(golden)) GTEST_SKIP() << golden << " is not here";
  OpenModel model = open_test_model(golden.string());
  model.source = std::make_unique<SickToken>(std::move(model.source), kSick);
  std::vector<LayoutOptions> layouts{cp(1), cp(3), cp(2), cp(1), cp(1), cp(2)};
  layouts[2].tp = 2;
  layouts[3].tp = 2;
  layouts[4].tp = 4;
  layouts[5].kv_mode = KvMode::kReplicated;
  for (const LayoutOptions& layout : layouts) {
    SCOPED_TRACE(layout_name(layout) + (layout.replicated() ? " replicated" : ""));
    const auto want = neighbours(model, layout, false);
    const auto got = neighbours(model, layout, true);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      for (const float logit : want[i]) ASSERT_TRUE(std::isfinite(logit));
      EXPECT_EQ(std::memcmp(got[i].data(), want[i].data(), want[i].size() * sizeof(float)), 0) << i;
    }
  }
}

}  // namespace
}  // namespace lariat
