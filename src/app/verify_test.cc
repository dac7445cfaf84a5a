// Every golden model through verify: page sizes, chunk sizes, poison, and configs in the old layout.
#include "app/verify.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/golden_test_util.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

class Golden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = golden_path(GetParam());
    if (!fs::exists(folder_)) GTEST_SKIP() << folder_ << " is not here";
  }
  void expect_passes(const OpenModel& model, const LayoutOptions& layout, bool poison) const {
    const auto report = verify_model(model, layout, folder_ / "golden.safetensors",
                                     rank_sets(RankTransport::kLocal, {.model = {}, .poison = poison}));
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_LE(report->max_error, kLogitErrorMax);
    EXPECT_EQ(report->mismatch, "");
    EXPECT_GE(report->positions, report->tokens - 24);
  }

  fs::path folder_;
};

TEST_P(Golden, PagesChunksPoison) {
  const OpenModel model = open_test_model(folder_.string());
  for (const int32_t page_tokens : {16, 64, 256}) {
    for (const int32_t chunk : {1, 7, 64, 0}) {
      for (const bool poison : {false, true}) {
        SCOPED_TRACE("page_tokens " + std::to_string(page_tokens) + " chunk " + std::to_string(chunk) +
                     (poison ? " poison" : ""));
        LayoutOptions layout;
        layout.threads = 2;
        layout.page_tokens = page_tokens;
        layout.chunk_tokens = chunk;
        expect_passes(model, layout, poison);
      }
    }
  }
}

// Logits that do not fit one message come in parts: as many positions are compared, and as well.
TEST_P(Golden, LogitsInParts) {
  const OpenModel model = open_test_model(folder_.string());
  LayoutOptions layout;
  layout.threads = 2;
  layout.chunk_tokens = 64;
  const RankSetFactory load = rank_sets(RankTransport::kLocal, {.model = {}, .poison = true});
  const auto whole = verify_model(model, layout, folder_ / "golden.safetensors", load);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  const int64_t five_and_a_bit = 5 * 4 * model.files.config.vocab + 1;
  const auto parts = verify_model(model, layout, folder_ / "golden.safetensors", load, five_and_a_bit);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  EXPECT_TRUE(parts->passed());
  EXPECT_EQ(parts->positions, whole->positions);
  EXPECT_EQ(parts->max_error, whole->max_error);
}

// The new layout's rope_parameters as rope_theta and rope_scaling.
nlohmann::json to_old_layout(nlohmann::json config) {
  nlohmann::json rope = config.at("rope_parameters");
  config.erase("rope_parameters");
  config["rope_theta"] = rope.at("rope_theta");
  rope.erase("rope_theta");
  if (rope.at("rope_type") == "default") {
    config["rope_scaling"] = nullptr;
  } else {
    config["rope_scaling"] = rope;
  }
  config["torch_dtype"] = config.value("dtype", "float32");
  config.erase("dtype");
  return config;
}

TEST_P(Golden, OldConfigLayout) {
  const fs::path copy = fs::path(testing::TempDir()) / ("old-layout-" + GetParam());
  fs::create_directories(copy);
  nlohmann::json config;
  std::ifstream(folder_ / "config.json") >> config;
  std::ofstream(copy / "config.json") << to_old_layout(config);
  fs::remove(copy / "model.safetensors");
  fs::create_symlink(fs::absolute(folder_ / "model.safetensors"), copy / "model.safetensors");
  LayoutOptions layout;
  layout.threads = 2;
  expect_passes(open_test_model(copy.string()), layout, false);
  fs::remove_all(copy);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(kGoldenModels), [](const auto& param) {
  std::string name = param.param;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
});

}  // namespace
}  // namespace lariat
