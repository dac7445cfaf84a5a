#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/requirements.h"
#include "weights/tensor_source.h"
#include "weights/test_files.h"

namespace lariat {
namespace {

using test::f32_safetensors;
using test::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// C13's toy: two shards and an index.
class Sharded : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("model-1.safetensors", f32_safetensors({{"a", {2, 3}, 1}, {"b", {4}, 2}}));
    folder_.write("model-2.safetensors", f32_safetensors({{"c", {5}, 3}, {"d", {2}, 4}}));
    index({{"a", "model-1.safetensors"},
           {"b", "model-1.safetensors"},
           {"c", "model-2.safetensors"},
           {"d", "model-2.safetensors"}});
  }
  void index(const std::vector<std::pair<std::string, std::string>>& map) {
    std::string text = R"({"metadata":{"total_size":68},"weight_map":{)";
    for (const auto& [name, shard] : map) {
      text += (text.back() == '{' ? "\"" : ",\"") + name + "\":\"" + shard + "\"";
    }
    folder_.write("model.safetensors.index.json", text + "}}");
  }
  Result<std::unique_ptr<TensorSource>> open() { return open_hf_source(*folder_files(folder_.path())); }
  std::string refusal() {
    const auto r = open();
    EXPECT_FALSE(r.ok());
    return r.ok() ? "" : r.error().message;
  }
  static std::vector<TensorRequirement> needs() {
    return {{.name = "a", .shape = {2, 3}},
            {.name = "b", .shape = {4}},
            {.name = "c", .shape = {5}},
            {.name = "d", .shape = {2}}};
  }

  TempFolder folder_;
};

TEST_F(Sharded, Reads) {
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_THAT((*source)->names(), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(static_cast<const float*>((*source)->find("d")->data)[1], 5.0f);
  std::string note;
  EXPECT_TRUE(check_requirements(**source, needs(), &note).ok());
  EXPECT_EQ(note, "");
  EXPECT_TRUE((*source)->notes().empty());
  EXPECT_TRUE((*source)->check_unchanged().ok());
}

TEST_F(Sharded, CutShard) {
  const auto path = folder_.path() / "model-2.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model-2.safetensors"), HasSubstr("\"d\"")));
}

TEST_F(Sharded, MissingShardAndMissingNamesTogether) {
  std::filesystem::remove(folder_.path() / "model-2.safetensors");
  index({{"a", "model-1.safetensors"},
         {"x", "model-1.safetensors"},
         {"y", "model-1.safetensors"},
         {"c", "model-2.safetensors"},
         {"d", "model-2.safetensors"}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model-2.safetensors"), HasSubstr("\"x\" is not in"),
                               HasSubstr("\"y\" is not in"), HasSubstr("(2 tensors)")));
}

TEST_F(Sharded, WeightMissingEverywhere) {
  folder_.write("model-2.safetensors", f32_safetensors({{"d", {2}, 4}}));
  index({{"a", "model-1.safetensors"}, {"b", "model-1.safetensors"}, {"d", "model-2.safetensors"}});
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.error().message;
  const Status s = check_requirements(**source, needs(), nullptr);
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.error().message, HasSubstr("\"c\" [5] is missing"));
}

TEST_F(Sharded, PathsThatEscape) {
  const TempFolder other;
  other.write("model.safetensors", f32_safetensors({{"c", {5}, 9}, {"d", {2}, 9}}));
  for (const std::string& path : {"../" + other.path().filename().string() + "/model.safetensors",
                                  (other.path() / "model.safetensors").string(), std::string(".."),
                                  std::string("sub/model.safetensors"), std::string("")}) {
    index({{"a", "model-1.safetensors"}, {"b", "model-1.safetensors"}, {"c", path}, {"d", path}});
    EXPECT_THAT(refusal(), AllOf(HasSubstr("weight_map[\"c\"]"), HasSubstr("weight_map[\"d\"]"),
                                 HasSubstr("not a file name")));
  }
}

TEST_F(Sharded, StrayFileIsIgnored) {
  folder_.write("model.safetensors", f32_safetensors({{"a", {2, 3}, 100}, {"z", {1}, 0}}));
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(static_cast<const float*>((*source)->find("a")->data)[0], 1.0f);
  EXPECT_FALSE((*source)->find("z"));
  EXPECT_THAT((*source)->notes(), ElementsAre(HasSubstr("not named by the index")));
}

TEST_F(Sharded, TensorBesideTheIndexIsNoted) {
  index({{"a", "model-1.safetensors"}, {"c", "model-2.safetensors"}, {"d", "model-2.safetensors"}});
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_FALSE((*source)->find("b"));
  EXPECT_THAT((*source)->notes(), ElementsAre(HasSubstr("1 tensors that the index does not name")));
}

TEST_F(Sharded, HostileIndex) {
  for (const char* text : {"", "[]", "{}", "null", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})",
                           R"({"weight_map":{"a":"x","a":"y"}})", R"({"weight_map":{"a":{"b":"c"}}})"}) {
    folder_.write("model.safetensors.index.json", text);
    EXPECT_THAT(refusal(), HasSubstr("index.json")) << text;
  }
}

TEST(Source, NeitherFileNorIndex) {
  const TempFolder folder;
  const auto r = open_hf_source(*folder_files(folder.path()));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, Errc::kNotFound);
}

TEST(Source, RequirementsNameEverything) {
  const TempFolder folder;
  folder.write("model.safetensors",
               f32_safetensors({{"t", {3, 2}, 0}, {"ok", {1}, 0}, {"rotary_emb.inv_freq", {8}, 0}}));
  const auto source = open_hf_source(*folder_files(folder.path()));
  ASSERT_TRUE(source.ok()) << source.error().message;
  const std::vector<TensorRequirement> needs = {
      {.name = "t", .shape = {2, 3}},
      {.name = "ok", .shape = {1}, .dtypes = {DType::kI8}},
      {.name = "gone", .shape = {7}},
      {.name = "maybe", .shape = {7}, .optional = true},
  };
  std::string note;
  const Status s = check_requirements(**source, needs, &note);
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.error().message, AllOf(HasSubstr("\"t\" has shape [3, 2], the config needs [2, 3]"),
                                       HasSubstr("\"ok\" has type f32"), HasSubstr("\"gone\" [7] is missing"),
                                       Not(HasSubstr("maybe"))));
  EXPECT_EQ(note, "1 tensor that the model does not use, ignored: rotary_emb.inv_freq");
}

TEST(Source, EmbeddedFilesReadLikeAFolder) {
  const std::string bytes = f32_safetensors({{"w", {2}, 7}});
  const EmbeddedFile files[] = {{"model.safetensors", std::as_bytes(std::span(bytes))}};
  const auto set = embedded_files("embedded:toy", files);
  EXPECT_TRUE(set->contains("model.safetensors"));
  EXPECT_FALSE(set->contains("config.json"));
  EXPECT_EQ(set->read_text("config.json", 10).error().code, Errc::kNotFound);
  EXPECT_EQ(set->read_text("model.safetensors", 10).error().code, Errc::kResourceExhausted);
  const auto source = open_hf_source(*set);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(static_cast<const float*>((*source)->find("w")->data)[1], 8.0f);
}

TEST(Source, PlainFileNames) {
  EXPECT_TRUE(is_plain_file_name("model-00001-of-00002.safetensors"));
  for (const std::string_view bad :
       std::vector<std::string_view>{"", ".", "..", "a/b", "/a", "a\\b", std::string_view("a\0b", 3)}) {
    EXPECT_FALSE(is_plain_file_name(bad));
  }
}

}  // namespace
}  // namespace lariat
