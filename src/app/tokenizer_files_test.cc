#include "app/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "weights/test_files.h"

namespace lariat {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kNeedle = std::filesystem::path(LARIAT_SOURCE_DIR) / "models/needle-5m";

nlohmann::ordered_json needle_json(const char* name) {
  const auto text = read_file(kNeedle / name, 64 << 20);
  EXPECT_TRUE(text.ok());
  return nlohmann::ordered_json::parse(*text);
}

std::string refusal(const test::TempFolder& folder) {
  const auto loaded = load_tokenizer(*folder_files(folder.path()));
  return loaded.ok() ? "accepted" : loaded.error().message;
}

TEST(TokenizerFiles, IdsBeyondTheModel) {
  const test::TempFolder folder;
  auto config = needle_json("config.json");
  auto tokenizer = needle_json("tokenizer.json");
  ASSERT_EQ(config["vocab_size"], 2048);
  folder.write("config.json", config.dump());
  folder.write("tokenizer.json", tokenizer.dump());
  EXPECT_EQ(refusal(folder), "accepted");

  const auto add = [&](int id, const char* content) {
    auto token = tokenizer["added_tokens"][0];
    token["id"] = id;
    token["content"] = content;
    tokenizer["added_tokens"].push_back(token);
    folder.write("tokenizer.json", tokenizer.dump());
  };
  add(2047, "<last>");
  EXPECT_EQ(refusal(folder), "accepted");
  add(2100, "<beyond>");
  EXPECT_EQ(refusal(folder), (folder.path() / "tokenizer.json").string() +
                                 ": token \"<beyond>\" has id 2100, but the model's vocab_size is 2048");
  add(2101, "<further>");
  EXPECT_THAT(refusal(folder), HasSubstr("with 1 more token"));
  config["vocab_size"] = 4096;  // padded, as most are
  folder.write("config.json", config.dump());
  EXPECT_EQ(refusal(folder), "accepted");
}

TEST(TokenizerFiles, FaultsNameTheFileAndThePlace) {
  const test::TempFolder folder;
  folder.write("tokenizer.json", "{\n  \"model\": {\"type\": \"BPE}\n");
  EXPECT_THAT(refusal(folder),
              AllOf(HasSubstr((folder.path() / "tokenizer.json").string() + ": invalid JSON"),
                    HasSubstr("(line 2, column ")));
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "merges": []}})");
  EXPECT_THAT(refusal(folder), HasSubstr((folder.path() / "tokenizer.json").string() + ": model: \"vocab\""));
  folder.write("tokenizer_config.json", R"({"bos_token": 3})");
  EXPECT_THAT(refusal(folder), HasSubstr(folder.path().string() + ": tokenizer_config.json: \"bos_token\""));
}

}  // namespace
}  // namespace lariat
