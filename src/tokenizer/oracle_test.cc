// Ids, texts and renderings that reference libraries gave for thousands of seeded inputs.
// scripts/oracle-tokenizer makes the files (build/oracle) and runs this.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "tokenizer/chat_encode.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/test_support.h"
#include "tokenizer/tokenizer.h"

namespace lariat {
namespace {

using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

std::filesystem::path oracle(const std::string& file) {
  const char* folder = std::getenv("LARIAT_ORACLE_DIR");
  return std::filesystem::path(folder ? folder : LARIAT_SOURCE_DIR "/build/oracle") / file;
}

#define SKIP_WITHOUT_ORACLE(path)     \
  if (!std::filesystem::exists(path)) \
  GTEST_SKIP() << (path) << " is not there: scripts/oracle-tokenizer makes it"

std::string base64_decode(const std::string& text) {
  static const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = (bits << 6) | static_cast<uint32_t>(kAlphabet.find(c));
    have += 6;
    if (have < 8) continue;
    have -= 8;
    out += static_cast<char>(static_cast<unsigned char>((bits >> have) & 0xFF));
  }
  return out;
}

std::unique_ptr<const Tokenizer> load_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string json((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  auto result = Tokenizer::parse(json);
  EXPECT_TRUE(result.ok()) << path << ": " << result.error().message;
  return result.ok() ? *std::move(result) : nullptr;
}

// Stops a flood: one broken rule breaks thousands of entries.
constexpr size_t kShownMax = 8;

TEST(Oracle, Tokenizers) {
  const auto path = oracle("tokenizers.json");
  SKIP_WITHOUT_ORACLE(path);
  size_t compared = 0;
  for (const auto& recorded : test::read_json(path)) {
    SCOPED_TRACE(recorded["name"].get<std::string>());
    const auto tokenizer = load_file(recorded["path"].get<std::string>());
    ASSERT_TRUE(tokenizer);
    size_t wrong = 0;
    const auto check = [&](const auto& got, const auto& want, const ordered_json& entry) {
      ++compared;
      if (got == want || ++wrong > kShownMax) return;
      EXPECT_EQ(got, want) << entry.dump().substr(0, 300);
    };
    for (const auto& entry : recorded["entries"]) {
      const std::string text = entry.contains("text") ? entry["text"].get<std::string>()
                                                      : base64_decode(entry["base64"].get<std::string>());
      const auto ids = entry["ids"].get<Ids>();
      check(*tokenizer->encode(text, {.add_bos = false}), ids, entry);
      check(*tokenizer->encode(text), entry["ids_special"].get<Ids>(), entry);
      check(tokenizer->decode(ids, false), entry["decoded"].get<std::string>(), entry);
    }
    for (const auto& entry : recorded["decodes"]) {
      check(tokenizer->decode(entry["ids"].get<Ids>(), entry["skip"].get<bool>()),
            entry["text"].get<std::string>(), entry);
    }
    EXPECT_EQ(wrong, 0u) << "entries that differ";
  }
  EXPECT_GT(compared, 10'000u);
}

// The tokenizers of these names.
std::map<std::string, std::unique_ptr<const Tokenizer>> load_named(const std::vector<std::string>& names) {
  std::map<std::string, std::unique_ptr<const Tokenizer>> out;
  for (const auto& recorded : test::read_json(oracle("tokenizers.json"))) {
    const auto name = recorded["name"].get<std::string>();
    if (std::find(names.begin(), names.end(), name) != names.end())
      out[name] = load_file(recorded["path"].get<std::string>());
  }
  return out;
}

TemplateInputs inputs_of(const ordered_json& entry) {
  TemplateInputs inputs;
  inputs.tools = entry["tools"];
  inputs.kwargs = entry["kwargs"];
  inputs.add_generation_prompt = entry["add_generation_prompt"].get<bool>();
  inputs.bos_token = entry["bos"].get<std::string>();
  inputs.eos_token = entry["eos"].get<std::string>();
  inputs.now.tm_year = 124;
  inputs.now.tm_mon = 6;
  inputs.now.tm_mday = 26;
  return inputs;
}

// C01: the ids that the models' own tokenizers give (recorded in public reports, not by the library above).
TEST(Oracle, KnownIds) {
  SKIP_WITHOUT_ORACLE(oracle("tokenizers.json"));
  const auto tokenizers = load_named({"llama3", "qwen3"});
  struct Known {
    const char* text;
    Ids llama3, qwen3;  // empty: not recorded
  };
  const Known known[] = {
      {" Việt", {101798}, {}},
      {" ", {220}, {220}},
      {"  ", {256}, {256}},
      {"   ", {262}, {262}},
      {"\t", {197}, {197}},
      {"\n", {198}, {198}},
      {"\n\n", {271}, {271}},
      {"\n\n\n", {1432}, {1406}},
      {"\t\n", {1602}, {1572}},
      {"3", {18}, {18}},
      {"33", {1644}, {18, 18}},
      {"333", {8765}, {18, 18, 18}},
      {"3333", {8765, 18}, {18, 18, 18, 18}},
      {"w048 7tuijk dsdfhu",
       {86, 23904, 220, 22, 83, 2005, 42908, 11729, 3013, 17156},
       {86, 15, 19, 23, 220, 22, 83, 1963, 41808, 11472, 2940, 16739}},
      {"ied 4 ½ months", {1142, 220, 19, 220, 27154, 4038}, {1122, 220, 19, 220, 26062, 3951}},
      {"Führer", {37, 51853, 261}, {37, 50753, 261}},
      {"' era", {6, 11639}, {6, 11385}},
      {"\n =", {198, 284}, {198, 284}},
      {" (", {320}, {320}},
      {"    Hello\n    Hello", {262, 22691, 198, 262, 22691}, {262, 21927, 198, 262, 21927}},
      {" this is 🦙.cpp", {420, 374, 11410, 99, 247, 13, 11055}, {419, 374, 11162, 99, 247, 13, 10821}},
      {"Hello, y'all! How are you 😁 ?我想在apple工作1314151天～",
       {9906,  11,     379,   65948, 0,      2650, 527,   499, 27623, 223,  949,
        37046, 101067, 19000, 23182, 102301, 9263, 18136, 16,  36827, 21909},
       {9707,  11,    379,   64848, 0,  2585, 525, 498, 26525, 223, 937,   104100,
        18493, 22377, 99257, 16,    18, 16,   19,  16,  20,    16,  35727, 21216}},
      {"->", {}, {405}},
      {"(x):\n", {}, {2075, 982}},
  };
  for (const Known& k : known) {
    if (!k.llama3.empty()) {
      EXPECT_EQ(*tokenizers.at("llama3")->encode(k.text, {.add_bos = false}), k.llama3) << k.text;
    }
    if (!k.qwen3.empty()) {
      EXPECT_EQ(*tokenizers.at("qwen3")->encode(k.text), k.qwen3) << k.text;
    }
  }
  EXPECT_EQ(*tokenizers.at("llama3")->encode("", {.add_bos = false}), Ids{});
  EXPECT_EQ(*tokenizers.at("qwen3")->encode(""), Ids{});
}

// Where Jinja2's answer is an error ours must be one too; its words may differ, but for raise_exception's.
TEST(Oracle, Templates) {
  const auto path = oracle("templates.json");
  SKIP_WITHOUT_ORACLE(path);
  size_t wrong = 0, with_python = 0, same_in_node = 0;
  for (const auto& entry : test::read_json(path)) {
    const auto parsed = ChatTemplate::parse(entry["source"].get<std::string>());
    ASSERT_TRUE(parsed.ok()) << parsed.error().message << "\n" << entry["source"];
    const auto got = parsed->render(entry["messages"], inputs_of(entry));
    const std::string shown = entry["name"].get<std::string>() + " " +
                              entry["source"].get<std::string>().substr(0, 300) + "\n" +
                              entry["messages"].dump().substr(0, 200);
    if (entry.contains("python")) {
      ++with_python;
      const ordered_json& want = entry["python"];
      const bool same =
          want.contains("text") ? got.ok() && got->text == want["text"].get<std::string>() : !got.ok();
      if (!same && ++wrong <= kShownMax) {
        ADD_FAILURE() << shown << "\nwant " << want.dump() << "\ngot  "
                      << (got.ok() ? got->text : "error: " + got.error().message);
      }
    }
    if (entry["node"].contains("text") && got.ok() && got->text == entry["node"]["text"].get<std::string>())
      ++same_in_node;
    // Node's renderer lacks parts of the language; on whole templates it must agree.
    if (entry["name"] != "language" && entry["node"].contains("text")) {
      const bool same = got.ok() && got->text == entry["node"]["text"].get<std::string>();
      if (!same && ++wrong <= kShownMax) {
        ADD_FAILURE() << shown << "\nnode " << entry["node"].dump() << "\ngot  "
                      << (got.ok() ? got->text : "error: " + got.error().message);
      }
    }
  }
  EXPECT_EQ(wrong, 0u) << "renderings that differ";
  EXPECT_GT(same_in_node, 400u);
  RecordProperty("with_python", static_cast<int>(with_python));
}

// Prompts through whole templates: where no content spells a control token, the ids are those of the plain
// text; where it does, the template's own are all there are (C04 b).
TEST(Oracle, ChatIds) {
  const auto path = oracle("templates.json");
  SKIP_WITHOUT_ORACLE(path);
  const auto tokenizers = load_named({"llama3", "qwen3", "deepseek"});
  const std::map<std::string, std::string> families = {{"llama32", "llama3"},
                                                       {"llama31", "llama3"},
                                                       {"qwen3", "qwen3"},
                                                       {"chatml", "qwen3"},
                                                       {"deepseek", "deepseek"}};
  size_t plain = 0, control = 0;
  for (const auto& entry : test::read_json(path)) {
    const auto name = entry["name"].get<std::string>();
    const auto family = families.find(name.substr(0, name.find('/')));
    if (family == families.end()) continue;
    const Tokenizer& tokenizer = *tokenizers.at(family->second);
    const auto chat =
        ChatTemplate::parse(entry["source"].get<std::string>())->render(entry["messages"], inputs_of(entry));
    if (!chat.ok()) continue;
    const Ids ids = *encode_chat(tokenizer, *chat);
    if (!name.ends_with("/control")) {
      ++plain;
      EXPECT_EQ(ids, *tokenizer.encode(chat->text, {.add_bos = false})) << name;
    } else if (family->second == "qwen3") {
      ++control;
      const auto turns = entry["messages"].size() + (entry["add_generation_prompt"].get<bool>() ? 1 : 0) +
                         (chat->text.starts_with("<|im_start|>system") ? 1 : 0);
      EXPECT_EQ(static_cast<size_t>(std::count(ids.begin(), ids.end(), 151644)), turns) << chat->text;
    }
  }
  EXPECT_GT(plain, 300u);
  EXPECT_GT(control, 10u);
}

}  // namespace
}  // namespace lariat
