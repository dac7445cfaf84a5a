#include "model/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"

namespace lariat {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GenerationConfig, Reads) {
  const auto g =
      parse_generation_config(R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0,
      "repetition_penalty":1.05,"eos_token_id":[7,9],"bos_token_id":1,"max_new_tokens":2048,"num_beams":1})",
                              10);
  ASSERT_TRUE(g.ok()) << g.error().message;
  EXPECT_EQ(g->do_sample, true);
  EXPECT_EQ(g->temperature, 0.6);
  EXPECT_EQ(g->top_k, 20);
  EXPECT_EQ(g->top_p, 0.95);
  EXPECT_EQ(g->min_p, 0.0);
  EXPECT_EQ(g->repetition_penalty, 1.05);
  EXPECT_THAT(g->eos_ids, ElementsAre(7, 9));
  EXPECT_TRUE(g->notes.empty());
}

TEST(GenerationConfig, AbsentIsUnset) {
  const auto g = parse_generation_config(R"({"temperature":null})", 10);
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(*g, GenerationDefaults{});
}

TEST(GenerationConfig, NotesWhatNobodyReads) {
  const auto g = parse_generation_config(R"({"num_beams":4,"typical_p":1.0,"suppress_tokens":[1]})", 10);
  ASSERT_TRUE(g.ok());
  EXPECT_THAT(g->notes, ElementsAre(HasSubstr("num_beams"), HasSubstr("suppress_tokens")));
}

TEST(GenerationConfig, AllFaultsAtOnce) {
  const auto g = parse_generation_config(R"({"do_sample":1,"temperature":-1,"top_k":1.5,"top_p":0,"min_p":2,
      "repetition_penalty":0,"eos_token_id":10})",
                                         10);
  ASSERT_FALSE(g.ok());
  EXPECT_THAT(g.error().message,
              AllOf(HasSubstr("do_sample is 1"), HasSubstr("temperature is -1"), HasSubstr("top_k is 1.5"),
                    HasSubstr("top_p is 0"), HasSubstr("min_p is 2"), HasSubstr("repetition_penalty is 0"),
                    HasSubstr("eos_token_id is 10")));
  EXPECT_FALSE(parse_generation_config("[]", 10).ok());
  EXPECT_FALSE(parse_generation_config("", 10).ok());
}

TEST(GenerationConfig, GoldenFiles) {
  const std::filesystem::path golden = std::filesystem::path(LARIAT_SHARED_DIR) / "golden";
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << "no golden data at " << golden;
  for (const char* name : {"llama-gqa", "qwen2", "qwen3-d128", "mistral-swa"}) {
    const auto text = read_file(golden / name / "generation_config.json", 100'000);
    ASSERT_TRUE(text.ok()) << text.error().message;
    const auto g = parse_generation_config(*text, 512);
    ASSERT_TRUE(g.ok()) << g.error().message;
    EXPECT_THAT(g->eos_ids, ElementsAre(2));
  }
}

}  // namespace
}  // namespace lariat
