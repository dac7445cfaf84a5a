// What the tokenizer's tests share: paths of the golden data and of the models.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/tokenizer.h"

namespace lariat::test {

inline std::filesystem::path shared(const std::string& path) {
  return std::filesystem::path(LARIAT_SHARED_DIR) / path;
}

inline nlohmann::ordered_json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return nlohmann::ordered_json::parse(in);
}

inline std::unique_ptr<const Tokenizer> load_model(const std::string& name) {
  auto result = Tokenizer::load(shared("models/" + name));
  if (!result.ok()) ADD_FAILURE() << result.error().message;
  return result.ok() ? *std::move(result) : nullptr;
}

// A byte-level tokenizer whose vocabulary is the 256 bytes, the tokens of `merges` and nothing else.
// `fields` are merged into the top level, `model` into the model.
inline nlohmann::ordered_json byte_tokenizer(
    const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  nlohmann::ordered_json vocab = nlohmann::ordered_json::object();
  for (int b = 0; b < 256; ++b) vocab[byte_level_char(static_cast<unsigned char>(b))] = b;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [left, right] : merges) {
    if (!vocab.contains(left + right)) vocab[left + right] = vocab.size();
    list.push_back({left, right});
  }
  return {{"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"added_tokens", nlohmann::ordered_json::array()},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}}};
}

}  // namespace lariat::test

#define SKIP_WITHOUT(path)            \
  if (!std::filesystem::exists(path)) \
  GTEST_SKIP() << (path) << " is not there (data that is not part of the repository)"
