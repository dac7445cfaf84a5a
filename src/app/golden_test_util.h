// The golden models and prompts as the tests of app/ reach them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/model_session.h"
#include "app/text_codec.h"
#include "app/tokenizer_files.h"

namespace lariat {

inline const std::vector<std::string> kGoldenModels{
    "llama-gqa",    "llama-d64", "llama-d128", "llama-linear", "llama-mha-bias", "llama-yarn",
    "llama31-rope", "qwen2",     "qwen3-mqa",  "qwen3-gqa",    "qwen3-d128",     "mistral-swa"};

// Where golden data would be; a test that needs what is not there skips.
inline std::filesystem::path golden_path(const std::string& name) {
  return std::filesystem::path(LARIAT_SHARED_DIR) / "golden" / name;
}

// A folder, or a name that is built in.
inline OpenModel open_test_model(const std::string& model) {
  auto opened = open_model({.model = model, .random_weights = {}, .model_dirs = {}}, std::nullopt);
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  return std::move(opened).value();
}

// The pass-key model with its prompts and its text side.
struct NeedleData {
  nlohmann::json cases;
  OpenModel model = open_test_model("needle-5m");
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<ModelCodec> codec;

  explicit NeedleData(const std::filesystem::path& cases_file) {
    std::ifstream(cases_file) >> cases;
    auto loaded = load_tokenizer(*model.files.files);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer = std::move(loaded).value();
    auto made = ModelCodec::create(*tokenizer);
    EXPECT_TRUE(made.ok()) << made.error().message;
    codec = std::move(made).value();
  }
};

}  // namespace lariat
