// verify over layouts, KV modes, strategies, interleaves and chunk sizes: a pairwise cover in every run, all
// of them on request. docs/design.md §9.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "app/golden_test_util.h"
#include "app/verify.h"
#include "plan/layout.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

struct LayoutAxis {
  const char* name;
  int32_t tp;
  int32_t cp;
  std::vector<int32_t> shares;
};
const std::vector<LayoutAxis> kLayouts{
    {"cp=2", 1, 2, {}},      {"cp=3", 1, 3, {}},           {"cp=4", 1, 4, {}},
    {"cp=5", 1, 5, {}},      {"tp=2", 2, 1, {}},           {"tp=4", 4, 1, {}},
    {"tp=2,cp=2", 2, 2, {}}, {"shares=3,1", 1, 2, {3, 1}}, {"shares=1,2,4", 1, 3, {1, 2, 4}}};

struct ModeAxis {
  const char* name;
  KvMode kv;
  Strategy strategy;
};
const std::vector<ModeAxis> kModes{{"pass_kv", KvMode::kStriped, Strategy::kPassKv},
                                   {"pass_q", KvMode::kStriped, Strategy::kPassQ},
                                   {"auto", KvMode::kStriped, Strategy::kAuto},
                                   {"replicated", KvMode::kReplicated, Strategy::kAuto}};
const std::vector<int32_t> kInterleaves{1, 16, 64};
const std::vector<int32_t> kChunks{1, 7, 64, 0};

// An index into each axis: model, layout, mode, interleave, chunk.
using Point = std::array<int, 5>;
constexpr std::array<int, 5> kSizes{12, 9, 4, 3, 4};

std::string name_of(const Point& p) {
  return kGoldenModels[static_cast<size_t>(p[0])] + " " + kLayouts[static_cast<size_t>(p[1])].name + " " +
         kModes[static_cast<size_t>(p[2])].name +
         " interleave=" + std::to_string(kInterleaves[static_cast<size_t>(p[3])]) +
         " chunk=" + std::to_string(kChunks[static_cast<size_t>(p[4])]);
}

// Axes without effect are not multiplied: with one cp rank there is no ring, so no strategy and no
// replication.
bool has_effect(const Point& p) {
  const LayoutAxis& layout = kLayouts[static_cast<size_t>(p[1])];
  return layout.cp > 1 || kModes[static_cast<size_t>(p[2])].strategy == Strategy::kAuto;
}

const OpenModel& model_of(const Point& p) {
  static std::map<int, OpenModel> open;
  auto it = open.find(p[0]);
  if (it == open.end())
    it = open.emplace(p[0], open_test_model(golden_path(kGoldenModels[static_cast<size_t>(p[0])]).string()))
             .first;
  return it->second;
}

// False if the point failed; gtest has been told.
bool check(const Point& p) {
  SCOPED_TRACE(name_of(p));
  const LayoutAxis& layout = kLayouts[static_cast<size_t>(p[1])];
  const ModeAxis& mode = kModes[static_cast<size_t>(p[2])];
  const OpenModel& model = model_of(p);
  LayoutOptions options;
  options.tp = layout.tp;
  options.cp = layout.cp;
  options.rank_shares = layout.shares;
  options.kv_mode = mode.kv;
  options.strategy = mode.strategy;
  options.interleave = kInterleaves[static_cast<size_t>(p[3])];
  options.chunk_tokens = kChunks[static_cast<size_t>(p[4])];
  options.threads = 1;
  options.comm_timeout = std::chrono::seconds(60);
  const fs::path golden = fs::path(LARIAT_SHARED_DIR) / "golden" / kGoldenModels[static_cast<size_t>(p[0])] /
                          "golden.safetensors";
  const auto report =
      verify_model(model, options, golden, rank_sets(RankTransport::kLocal, {.model = {}, .poison = true}));
  const auto& c = model.files.config;
  if (check_layout({layout.tp, layout.cp}, static_cast<int32_t>(c.heads), static_cast<int32_t>(c.kv_heads))) {
    EXPECT_FALSE(report.ok()) << "a layout that plan refuses was served";
    return !report.ok();
  }
  EXPECT_TRUE(report.ok()) << report.error().message;
  if (!report.ok()) return false;
  EXPECT_LE(report->max_error, kLogitErrorMax);
  EXPECT_EQ(report->mismatch, "");
  return report->passed();
}

std::set<std::array<int, 4>> pairs_of(const Point& p) {
  std::set<std::array<int, 4>> pairs;
  for (int a = 0; a < 5; ++a) {
    for (int b = a + 1; b < 5; ++b)
      pairs.insert({a, p[static_cast<size_t>(a)], b, p[static_cast<size_t>(b)]});
  }
  return pairs;
}

// Greedy cover: of some random points the one with most new pairs, until every pair of effective values has
// occurred.
std::vector<Point> pairwise_cover(uint32_t seed) {
  std::mt19937 rng(seed);
  const auto random_point = [&] {
    Point p;
    do {
      for (size_t a = 0; a < 5; ++a) p[a] = static_cast<int>(rng() % static_cast<uint32_t>(kSizes[a]));
    } while (!has_effect(p));
    return p;
  };
  std::set<std::array<int, 4>> open;
  for (int trial = 0; trial < 200000; ++trial) open.merge(pairs_of(random_point()));
  std::vector<Point> cover;
  while (!open.empty()) {
    Point best{};
    size_t best_new = 0;
    for (int trial = 0; trial < 300 || best_new == 0; ++trial) {
      const Point p = random_point();
      size_t fresh = 0;
      for (const auto& pair : pairs_of(p)) fresh += open.count(pair);
      if (fresh > best_new) {
        best = p;
        best_new = fresh;
      }
    }
    for (const auto& pair : pairs_of(best)) open.erase(pair);
    cover.push_back(best);
  }
  return cover;
}

bool golden_missing() {
  return !fs::exists(fs::path(LARIAT_SHARED_DIR) / "golden");
}

TEST(LayoutMatrix, PairwiseCover) {
  if (golden_missing()) GTEST_SKIP() << LARIAT_SHARED_DIR << "/golden is not here";
  const char* given = std::getenv("LARIAT_MATRIX_SEED");
  const uint32_t seed = given ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : 20261129;
  const auto cover = pairwise_cover(seed);
  std::printf("seed %u (LARIAT_MATRIX_SEED): %zu combinations\n", seed, cover.size());
  ASSERT_LE(cover.size(), 300u);
  for (const Point& p : cover) check(p);
}

// All combinations; LARIAT_MATRIX_STATE names a file of those that passed, so that a stopped run goes on.
TEST(LayoutMatrix, Everything) {
  const char* state_path = std::getenv("LARIAT_MATRIX_STATE");
  if (!state_path) GTEST_SKIP() << "scripts/test --full=verify runs it";
  ASSERT_FALSE(golden_missing()) << LARIAT_SHARED_DIR << "/golden is not here";
  std::set<std::string> passed;
  std::ifstream in(state_path);
  for (std::string line; std::getline(in, line);) passed.insert(line);
  std::ofstream state(state_path, std::ios::app);
  int64_t ran = 0;
  Point p;
  for (p[0] = 0; p[0] < kSizes[0]; ++p[0])
    for (p[1] = 0; p[1] < kSizes[1]; ++p[1])
      for (p[2] = 0; p[2] < kSizes[2]; ++p[2])
        for (p[3] = 0; p[3] < kSizes[3]; ++p[3])
          for (p[4] = 0; p[4] < kSizes[4]; ++p[4]) {
            if (!has_effect(p) || passed.count(name_of(p))) continue;
            if (check(p)) state << name_of(p) << std::endl;
            if (++ran % 100 == 0)
              std::printf("%lld run, at %s\n", static_cast<long long>(ran), name_of(p).c_str());
          }
  std::printf("%lld run now, %zu before\n", static_cast<long long>(ran), passed.size());
}

// C24: heads against ranks. Either it answers or a refusal names both numbers; splitting positions alone
// always works.
TEST(LayoutMatrix, HeadsAgainstRanks) {
  struct Case {
    int32_t heads, kv_heads, tp;
    bool works;
  };
  for (const Case& c : {Case{8, 4, 8, true}, Case{8, 2, 4, true}, Case{32, 8, 5, false},
                        Case{52, 52, 8, false}, Case{16, 1, 4, true}}) {
    const auto refusal = check_layout({c.tp, 1}, c.heads, c.kv_heads);
    EXPECT_EQ(!refusal.has_value(), c.works) << c.heads << "/" << c.kv_heads << " on " << c.tp;
    if (refusal) {
      EXPECT_NE(refusal->reason.find(std::to_string(c.tp)), std::string::npos) << refusal->reason;
      EXPECT_NE(refusal->reason.find(std::to_string(c.heads)), std::string::npos) << refusal->reason;
    }
    EXPECT_FALSE(check_layout({1, c.tp}, c.heads, c.kv_heads).has_value());
  }
}

}  // namespace
}  // namespace lariat
