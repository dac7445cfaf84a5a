#include "model/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "model/required_tensors.h"
#include "models/embedded.h"
#include "weights/test_files.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kToy = R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8,
  "intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"vocab_size":16,
  "max_position_embeddings":64,"bos_token_id":1,"eos_token_id":2,"tie_word_embeddings":TIE})";

std::string toy_config(bool tie) {
  std::string text = kToy;
  return text.replace(text.find("TIE"), 3, tie ? "true" : "false");
}

// A toy model folder: the weights of its config, with `change` applied to the tensors.
class Toy {
 public:
  using Tensors = std::vector<test::F32Tensor>;

  explicit Toy(bool tie, const std::function<void(Tensors&)>& change = [](Tensors&) {}) {
    const auto config = parse_config(toy_config(tie));
    EXPECT_TRUE(config.ok());
    Tensors tensors;
    for (const TensorRequirement& r : required_tensors(*config)) {
      std::vector<int64_t> shape;
      for (int i = 0; i < r.shape.rank(); ++i) shape.push_back(r.shape[i]);
      tensors.push_back({r.name, shape, 0.5f});
    }
    change(tensors);
    folder.write("config.json", toy_config(tie));
    folder.write("model.safetensors", test::f32_safetensors(tensors));
  }
  ModelFiles resolve() const {
    auto m = resolve_model(folder.path().string(), {});
    EXPECT_TRUE(m.ok()) << m.error().message;
    return std::move(*m);
  }

  test::TempFolder folder;
};

void add_head(Toy::Tensors& t) {
  t.push_back({"lm_head.weight", {16, 8}, 9.0f});
}
void drop(Toy::Tensors& t, const std::string& name) {
  std::erase_if(t, [&](const test::F32Tensor& x) { return x.name == name; });
}

// C14 (a).
TEST(ModelFiles, TiedHeads) {
  std::vector<std::string> notes;
  EXPECT_TRUE(open_weights(Toy(true).resolve(), &notes).ok());
  EXPECT_TRUE(notes.empty());

  const Toy tied_present(true, add_head);
  EXPECT_TRUE(open_weights(tied_present.resolve(), &notes).ok());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("ignored: lm_head.weight")));

  const Toy untied_present(false);
  const auto source = open_weights(untied_present.resolve(), nullptr);
  ASSERT_TRUE(source.ok());
  EXPECT_TRUE((*source)->find("lm_head.weight"));

  const Toy untied_absent(false, [](Toy::Tensors& t) { drop(t, "lm_head.weight"); });
  const auto refused = open_weights(untied_absent.resolve(), nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("\"lm_head.weight\" [16, 8] is missing"));
}

// C13 (c), (f), (h) on the whole way from the folder, all named at once.
TEST(ModelFiles, UnfitWeights) {
  const Toy toy(true, [](Toy::Tensors& t) {
    drop(t, "model.layers.1.mlp.up_proj.weight");
    for (auto& x : t) {
      if (x.name == "model.layers.0.self_attn.k_proj.weight") std::swap(x.shape[0], x.shape[1]);
    }
    t.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}, 0});
  });
  const auto r = open_weights(toy.resolve(), nullptr);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(
      r.error().message,
      AllOf(
          HasSubstr("\"model.layers.1.mlp.up_proj.weight\" [12, 8] is missing"),
          HasSubstr("\"model.layers.0.self_attn.k_proj.weight\" has shape [8, 4], the config needs [4, 8]")));
}

// The entries' damage and what the config misses, in one error.
TEST(ModelFiles, DamagedAndUnfitWeights) {
  const Toy toy(true, [](Toy::Tensors& t) {
    drop(t, "model.layers.1.mlp.up_proj.weight");
    drop(t, "model.norm.weight");
    for (auto& x : t) {
      if (x.name == "model.layers.0.self_attn.k_proj.weight") std::swap(x.shape[0], x.shape[1]);
    }
  });
  std::string bytes = *read_file(toy.folder.path() / "model.safetensors", 1 << 20);
  const auto damage = [&](const std::string& name, const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    const size_t at = bytes.find(from, bytes.find("\"" + name + "\""));
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, from.size(), to);
  };
  damage("model.layers.0.input_layernorm.weight", "[8]", "-8 ");
  damage("model.layers.1.input_layernorm.weight", "F32", "F33");
  damage("model.layers.0.mlp.up_proj.weight", "F32", "I32");
  toy.folder.write("model.safetensors", bytes);
  const auto r = open_weights(toy.resolve(), nullptr);
  ASSERT_FALSE(r.ok());
  const std::string& message = r.error().message;
  for (const char* fault :
       {"\"model.layers.0.input_layernorm.weight\": negative number",
        "\"model.layers.1.input_layernorm.weight\": unknown dtype \"F33\"",
        "\"model.layers.1.mlp.up_proj.weight\" [12, 8] is missing", "\"model.norm.weight\" [8] is missing",
        "\"model.layers.0.self_attn.k_proj.weight\" has shape [8, 4], the config needs [4, 8]",
        "\"model.layers.0.mlp.up_proj.weight\" has type i32"}) {
    EXPECT_THAT(message, HasSubstr(fault));
  }
  // What damage explains is not said again.
  EXPECT_THAT(message, Not(HasSubstr("input_layernorm.weight\" [8] is missing")));
}

TEST(ModelFiles, EmbeddedIsTheFolder) {
  const auto embedded = resolve_model("needle-5m", {.dirs = {}, .embedded = embedded_models()});
  ASSERT_TRUE(embedded.ok()) << embedded.error().message;
  EXPECT_EQ(embedded->id, "needle-5m");
  const fs::path folder = fs::path(LARIAT_SOURCE_DIR) / "models/needle-5m";
  const auto plain = resolve_model(folder.string() + "/", {});
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(plain->id, "needle-5m");
  EXPECT_EQ(plain->config, embedded->config);
  EXPECT_EQ(plain->generation, embedded->generation);
  EXPECT_THAT(plain->eos_ids, ElementsAre(5));
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const auto a = plain->files->open(name), b = embedded->files->open(name);
    ASSERT_TRUE(a.ok() && b.ok()) << name;
    ASSERT_EQ(a->bytes().size(), b->bytes().size()) << name;
    EXPECT_EQ(std::memcmp(a->bytes().data(), b->bytes().data(), a->bytes().size()), 0) << name;
  }
  EXPECT_TRUE(open_weights(*embedded, nullptr).ok());
}

TEST(ModelFiles, Inspect) {
  const auto m = resolve_model("needle-5m", {.dirs = {}, .embedded = embedded_models()});
  ASSERT_TRUE(m.ok());
  const auto s = inspect_model(*m);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const nlohmann::json j = to_json(*s);
  EXPECT_EQ(j["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(j["layers"], 6);
  EXPECT_EQ(j["heads"], 4);
  EXPECT_EQ(j["kv_heads"], 2);
  EXPECT_EQ(j["head_dim"], 64);
  EXPECT_EQ(j["vocab"], 2048);
  EXPECT_EQ(j["context"], 131072);
  EXPECT_EQ(j["tensors"], 2 + 6 * 9);
  EXPECT_EQ(j["weights_bytes"], weights_bytes(m->config, DType::kBF16));
  EXPECT_EQ(j.size(), 9u);
}

TEST(ModelFiles, NamesInModelsFolders) {
  const test::TempFolder dir;
  fs::create_directory(dir.path() / "toy");
  std::ofstream(dir.path() / "toy" / "config.json") << toy_config(true);
  const ModelSearch search{.dirs = {"/nonexistent", dir.path()}, .embedded = embedded_models()};
  const auto m = resolve_model("toy", search);
  ASSERT_TRUE(m.ok()) << m.error().message;
  EXPECT_EQ(m->id, "toy");
  EXPECT_EQ(m->files->folder(), dir.path() / "toy");
  const auto absent = resolve_model("nothing", search);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Errc::kNotFound);
  EXPECT_THAT(absent.error().message,
              AllOf(HasSubstr("\"nothing\""), HasSubstr(dir.path().string()), HasSubstr("needle-5m")));
  // A name is no path: it cannot leave the models folder.
  EXPECT_FALSE(
      resolve_model("../" + dir.path().filename().string() + "/toy", {.dirs = {dir.path()}, .embedded = {}})
          .ok());
}

TEST(ModelFiles, Refusals) {
  EXPECT_THAT(resolve_model("x.gguf", {}).error().message, HasSubstr("GGUF is not supported yet"));
  EXPECT_EQ(resolve_model("x.gguf", {}).error().code, Errc::kUnsupported);
  EXPECT_FALSE(resolve_model("", {}).ok());
  EXPECT_FALSE(resolve_model(std::string_view("a\0b", 3), {}).ok());
  const test::TempFolder empty;
  EXPECT_THAT(resolve_model(empty.path().string(), {}).error().message, HasSubstr("no config.json"));
  empty.write("file.bin", "x");
  EXPECT_THAT(resolve_model((empty.path() / "file.bin").string(), {}).error().message,
              HasSubstr("a model is a folder"));
  empty.write("config.json", toy_config(true));
  empty.write("generation_config.json", R"({"temperature":"hot"})");
  EXPECT_THAT(resolve_model(empty.path().string(), {}).error().message, HasSubstr("temperature is \"hot\""));
  empty.write("config.json", R"({"model_type":"bert"})");
  EXPECT_THAT(resolve_model(empty.path().string(), {}).error().message,
              AllOf(HasSubstr("\"bert\""), HasSubstr("temperature is \"hot\"")));
}

TEST(ModelFiles, RandomWeights) {
  const test::TempFolder folder;
  folder.write("tiny.json", toy_config(false));
  const auto m = random_model(folder.path() / "tiny.json", 5, std::nullopt);
  ASSERT_TRUE(m.ok()) << m.error().message;
  EXPECT_EQ(m->id, "tiny");
  EXPECT_THAT(m->eos_ids, ElementsAre(2));
  const auto source = open_weights(*m, nullptr);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ((*source)->find("lm_head.weight")->dtype, DType::kF32);
  const auto s = inspect_model(*m);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->weights_bytes, weights_bytes(m->config, DType::kF32));
  const auto bf16 = random_model(folder.path() / "tiny.json", 5, DType::kBF16);
  ASSERT_TRUE(bf16.ok());
  EXPECT_EQ(inspect_model(*bf16)->weights_bytes, s->weights_bytes / 2);
  EXPECT_EQ(random_model(folder.path() / "tiny.json", 5, DType::kI8).error().code, Errc::kUnsupported);
  folder.write("config.json", toy_config(true));
  const auto by_folder = random_model(folder.path(), 0, std::nullopt);
  ASSERT_TRUE(by_folder.ok());
  EXPECT_EQ(by_folder->id, folder.path().filename().string());
  EXPECT_FALSE(random_model(folder.path() / "absent.json", 0, std::nullopt).ok());
}

}  // namespace
}  // namespace lariat
