// C14 (b): a head size that is not hidden / heads, through the whole decoder: the attention scale is
// 8^-0.5, not 5^-0.5. The reference is the model's definition written out in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "model/required_tensors.h"
#include "weights/random_source.h"
#include "worker/model_executor.h"

namespace lariat {
namespace {

using Vector = std::vector<double>;

constexpr std::string_view kConfig =
    R"({"model_type":"qwen3","hidden_size":20,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,
    "intermediate_size":12,"num_hidden_layers":2,"vocab_size":32,"max_position_embeddings":64,
    "rms_norm_eps":1e-6,"rope_theta":10000.0,"tie_word_embeddings":false})";
constexpr size_t kHeadDim = 8, kHeads = 4, kKvHeads = 2;

class Reference {
 public:
  Reference(const TensorSource& source, double scale) : source_(source), scale_(scale) {}

  // Logits of every position.
  std::vector<Vector> logits(const std::vector<int32_t>& ids) const {
    std::vector<Vector> x;
    for (const int32_t id : ids) x.push_back(row("model.embed_tokens.weight", static_cast<size_t>(id)));
    for (int layer = 0; layer < 2; ++layer) {
      const std::string at = "model.layers." + std::to_string(layer) + ".";
      attend(at, x);
      for (Vector& v : x) {
        const Vector in = normed(v, at + "post_attention_layernorm.weight");
        Vector gate = product(at + "mlp.gate_proj.weight", in);
        const Vector up = product(at + "mlp.up_proj.weight", in);
        for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
        add(v, product(at + "mlp.down_proj.weight", gate));
      }
    }
    for (Vector& v : x) v = product("lm_head.weight", normed(v, "model.norm.weight"));
    return x;
  }

 private:
  struct Weights {
    size_t rows, columns;
    const float* data;
  };
  Weights weights(const std::string& name) const {
    const auto view = source_.find(name);
    EXPECT_TRUE(view) << name;
    const auto last = static_cast<size_t>(view->shape[view->shape.rank() - 1]);
    return {static_cast<size_t>(view->shape.elements()) / last, last, static_cast<const float*>(view->data)};
  }
  Vector row(const std::string& name, size_t i) const {
    const Weights w = weights(name);
    return {w.data + i * w.columns, w.data + (i + 1) * w.columns};
  }
  Vector product(const std::string& name, const Vector& x) const {
    const Weights w = weights(name);
    EXPECT_EQ(w.columns, x.size()) << name;
    Vector out(w.rows);
    for (size_t i = 0; i < w.rows; ++i) {
      for (size_t k = 0; k < w.columns; ++k) out[i] += static_cast<double>(w.data[i * w.columns + k]) * x[k];
    }
    return out;
  }
  Vector normed(Vector x, const std::string& name) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
    const Vector w = row(name, 0);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= inverse * w[i];
    return x;
  }
  static void add(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  // Head h of a projection: normed over its 8 values, then turned by its position.
  Vector head(const Vector& projected, size_t h, const std::string& norm, size_t position) const {
    const auto begin = projected.begin() + static_cast<ptrdiff_t>(h * kHeadDim);
    Vector v = normed({begin, begin + kHeadDim}, norm);
    for (size_t i = 0; i < kHeadDim / 2; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(i) / kHeadDim);
      const double a = v[i], b = v[i + kHeadDim / 2];
      v[i] = a * std::cos(angle) - b * std::sin(angle);
      v[i + kHeadDim / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
    return v;
  }
  void attend(const std::string& at, std::vector<Vector>& x) const {
    std::vector<Vector> q, k, v;
    for (const Vector& token : x) {
      const Vector in = normed(token, at + "input_layernorm.weight");
      q.push_back(product(at + "self_attn.q_proj.weight", in));
      k.push_back(product(at + "self_attn.k_proj.weight", in));
      v.push_back(product(at + "self_attn.v_proj.weight", in));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      Vector attended(kHeads * kHeadDim);
      for (size_t h = 0; h < kHeads; ++h) {
        const size_t g = h / (kHeads / kKvHeads);
        const Vector query = head(q[t], h, at + "self_attn.q_norm.weight", t);
        Vector weight;
        double sum = 0;
        for (size_t s = 0; s <= t; ++s) {
          const Vector key = head(k[s], g, at + "self_attn.k_norm.weight", s);
          double score = 0;
          for (size_t i = 0; i < kHeadDim; ++i) score += query[i] * key[i];
          weight.push_back(std::exp(scale_ * score));
          sum += weight.back();
        }
        for (size_t s = 0; s <= t; ++s) {
          for (size_t i = 0; i < kHeadDim; ++i)
            attended[h * kHeadDim + i] += weight[s] / sum * v[s][g * kHeadDim + i];
        }
      }
      add(x[t], product(at + "self_attn.o_proj.weight", attended));
    }
  }

  const TensorSource& source_;
  const double scale_;
};

std::vector<std::vector<float>> forward(const DecoderConfig& config, const TensorSource& source,
                                        const std::vector<int32_t>& ids) {
  auto stream = Stream::cpu(1);
  auto weights = DecoderWeights::load(config, shard_of(config, 1, 0), source, std::nullopt,
                                      {.stream = *stream, .progress = {}});
  EXPECT_TRUE(weights.ok());
  const RankPlace place{.rank = Rank(0),
                        .constants = {.layout = {.tp = 1, .cp = 1},
                                      .placement = *Placement::equal(1, 1),
                                      .heads = static_cast<int32_t>(config.heads),
                                      .kv_heads = static_cast<int32_t>(config.kv_heads),
                                      .k_dim = static_cast<int32_t>(config.head_dim),
                                      .v_dim = static_cast<int32_t>(config.head_dim),
                                      .hidden = config.hidden,
                                      .windows = {}}};
  auto executor = ModelExecutor::create(
      std::make_shared<const Decoder>(config, *weights), std::move(stream), place,
      {.kv_type = DType::kF32, .page_tokens = 16, .pages_total = 2, .pass_tokens = 16, .poison = true});
  EXPECT_TRUE(executor.ok());
  StepPlan plan;
  plan.step = StepId(1);
  PlanRow row;
  row.id = RowId(1);
  row.pages = {{PageId(1)}};
  row.n = static_cast<int32_t>(ids.size());
  row.tokens = ids;
  row.wanted = LogitsWanted::kAll;
  row.logits_count = row.n;
  plan.rows.push_back(row);
  const auto outcome = (*executor)->run(plan, [] { return true; });
  EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  std::vector<std::vector<float>> out(ids.size());
  for (const PositionLogits& at : outcome->rows[0].logits) out[static_cast<size_t>(at.pos)] = at.values;
  return out;
}

double max_difference(const std::vector<std::vector<float>>& got, const std::vector<Vector>& want) {
  double worst = 0;
  for (size_t t = 0; t < want.size(); ++t) {
    EXPECT_EQ(got[t].size(), want[t].size());
    for (size_t i = 0; i < want[t].size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(got[t][i]) - want[t][i]));
  }
  return worst;
}

TEST(HeadSize, ScaleIsOfTheHeadNotOfTheWidth) {
  const auto config = parse_config(kConfig);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto source = random_source(required_tensors(*config), {.seed = 14, .dtype = DType::kF32});
  const std::vector<int32_t> ids = {3, 17, 31, 0, 8, 8, 25, 2, 11, 30};
  const auto got = forward(*config, *source, ids);
  EXPECT_LT(max_difference(got, Reference(*source, std::pow(8.0, -0.5)).logits(ids)), 2e-4);
  // The fault would be seen.
  EXPECT_GT(max_difference(got, Reference(*source, std::pow(5.0, -0.5)).logits(ids)), 1e-2);
}

}  // namespace
}  // namespace lariat
