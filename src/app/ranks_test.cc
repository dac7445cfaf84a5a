// Many ranks answer as one: the pass-key prompts, lengths that divide nothing, and rows that do not feel
// their batch.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/golden_test_util.h"
#include "app/rank_group_test_util.h"
#include "plan/net_bytes.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

class Needle : public testing::TestWithParam<LayoutOptions> {};

TEST_P(Needle, PassKeysTo16K) {
  const fs::path path = golden_path("needle-5m/cases.json");
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not here";
  const NeedleData needle(path);
  RankGroupUnderTest group(needle.model, GetParam(), 16400);
  int compared = 0;
  for (const auto& c : needle.cases) {
    if (c.at("prompt_tokens") > 16384) continue;
    ChatPrompt prompt;
    prompt.messages = c.at("messages");
    const auto ids = needle.codec->encode_chat(prompt);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    ASSERT_EQ(ids->size(), c.at("prompt_tokens").get<size_t>());
    EXPECT_EQ(group.generate(*ids, 512, 32, 5), c.at("output_ids").get<std::vector<int32_t>>())
        << c.at("prompt_tokens") << " tokens";
    ++compared;
  }
  EXPECT_EQ(compared, 22);
}

// The prompt's lines with the one that answers its question moved to line `at`; the answer is the same.
struct MovedNeedle {
  std::string text;
  std::string before;  // the text in front of the needle
};
MovedNeedle move_needle(const std::string& content, const std::string& answer, size_t at) {
  std::vector<std::string> lines = split(content, '\n');
  const std::string question = lines.back();
  lines.pop_back();
  const auto needle = std::find(lines.begin(), lines.end(), answer);
  EXPECT_NE(needle, lines.end()) << answer;
  if (needle != lines.end()) lines.erase(needle);
  MovedNeedle moved;
  for (size_t i = 0; i <= lines.size(); ++i) {
    if (i == at) {
      moved.before = moved.text;
      moved.text += answer + "\n";
    }
    if (i < lines.size()) moved.text += lines[i] + "\n";
  }
  moved.text += question;
  return moved;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Needle, testing::Values(cp(2), cp(3, 16)), [](const auto& param) {
  return "cp" + std::to_string(param.param.cp) + "_interleave" + std::to_string(param.param.interleave);
});

// Depth x length x ranks: runs of 16 positions stay on a rank, and the needle sits on each rank in turn.
TEST(Ranks, NeedleOnEachRankInTurn) {
  const fs::path path = golden_path("needle-5m/cases.json");
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not here";
  const NeedleData needle(path);
  for (const int32_t ranks : {2, 3, 5}) {
    RankGroupUnderTest group(needle.model, cp(ranks, 16), 4100);
    std::set<int32_t> hit;
    for (const size_t which : {0, 6, 12}) {  // some 150, 950 and 3,950 tokens
      const std::string content = needle.cases[which].at("messages")[0].at("content");
      const std::string output = needle.cases[which].at("output");
      const auto lines = static_cast<size_t>(std::count(content.begin(), content.end(), '\n'));
      for (size_t depth = 0; depth < 6; ++depth) {
        const MovedNeedle moved = move_needle(content, output, depth * (lines - 1) / 5);
        ChatPrompt prompt;
        prompt.messages = nlohmann::json::array({{{"role", "user"}, {"content", moved.text}}});
        const auto ids = needle.codec->encode_chat(prompt);
        ASSERT_TRUE(ids.ok());
        // The user's text starts a few tokens in; a run of 16 is long enough for that not to matter here.
        const auto before = needle.codec->encode(moved.before);
        ASSERT_TRUE(before.ok());
        hit.insert(static_cast<int32_t>(before->size() / 16 % static_cast<size_t>(ranks)));
        const auto out = group.generate(*ids, 512, 32, 5);
        EXPECT_EQ(needle.tokenizer->decode(out, true), output)
            << ranks << " ranks, case " << which << ", depth " << depth;
      }
    }
    EXPECT_EQ(hit.size(), static_cast<size_t>(ranks)) << "no needle began on some rank";
  }
}

// C21: lengths below the rank count, around tiles, and one that divides nothing.
TEST(Ranks, LengthsThatDivideNothing) {
  const fs::path golden = golden_path("llama-gqa");
  if (!fs::exists(golden)) GTEST_SKIP() << golden << " is not here";
  const OpenModel model = open_test_model(golden.string());
  RankGroupUnderTest one(model, cp(1), 3100);
  std::map<int, std::vector<int32_t>> want;
  std::map<int, std::vector<float>> first;  // logits of the first token
  const std::vector<int> lengths{1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 65, 127, 2999};
  const auto prompt = [](int n) { return random_ids(static_cast<uint32_t>(n), static_cast<size_t>(n), 512); };
  for (const int n : lengths) {
    want[n] = one.generate(prompt(n), INT32_MAX, 20);
    first[n] = one.first_logits();
  }
  for (const int32_t ranks : {2, 3, 4, 5}) {
    for (const int32_t interleave : {1, 16}) {
      RankGroupUnderTest many(model, cp(ranks, interleave), 3100);
      for (const int n : lengths) {
        for (const int32_t chunk : {INT32_MAX, 16, 7}) {
          // Hundreds of steps: each chunk once, on ranks and runs that divide neither it nor the length.
          const bool chosen = chunk == 16 ? ranks == 3 && interleave == 1 : ranks == 4 && interleave == 16;
          if (n > 1000 && chunk != INT32_MAX && !chosen) continue;
          SCOPED_TRACE(
              fmt::format("{} tokens, {} ranks, interleave {}, chunk {}", n, ranks, interleave, chunk));
          EXPECT_EQ(many.generate(prompt(n), chunk, 20), want[n]);
          EXPECT_LE(max_difference(many.first_logits(), first[n]), 1e-4);
        }
      }
    }
  }
}

// What `plan` says crosses between ranks is what their groups count, byte for byte.
void expect_bytes_as_planned(const OpenModel& model, const LayoutOptions& layout) {
  constexpr int32_t kPrompt = 613;  // the last step is one token; with chunks of 0 a step is many passes
  SCOPED_TRACE(layout_name(layout) + (layout.replicated() ? " replicated" : " striped") + " strategy " +
               std::to_string(static_cast<int>(layout.strategy)) + " chunk " +
               std::to_string(layout.chunk_tokens));
  const auto constants = schedule_constants(model.files.config, layout);
  ASSERT_TRUE(constants.ok());
  RankGroupUnderTest group(model, layout, kPrompt + 16);
  RankGroupUnderTest::Row row{RowId(1), random_ids(3, kPrompt, 512), {}, 0, false};
  while (row.done < kPrompt)
    group.step({group.next(row, layout.chunk_tokens ? layout.chunk_tokens : kPrompt)});
  const int64_t prefill = group.ranks().bytes_sent();
  EXPECT_EQ(prefill, prefill_net_bytes(*constants, {.tokens = kPrompt,
                                                    .chunk = layout.chunk_tokens,
                                                    .pass_tokens = group.plan().pass_tokens,
                                                    .strategy = layout.strategy}));
  row.decoding = true;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = group.ranks().bytes_sent();
    row.ids.push_back(7);
    group.step({group.next(row, 1)});
    EXPECT_EQ(group.ranks().bytes_sent() - before, decode_net_bytes(*constants)) << "token " << i;
  }
}

TEST(Ranks, NetworkBytesAreWhatPlanSays) {
  const fs::path golden = golden_path("llama-gqa");  // 2 KV heads
  if (!fs::exists(golden)) GTEST_SKIP() << golden << " is not here";
  const OpenModel model = open_test_model(golden.string());
  for (const auto& [tp, ranks] : {std::pair{1, 2}, {1, 3}, {2, 1}, {2, 2}, {4, 1}, {4, 2}}) {
    for (const Strategy strategy : {Strategy::kPassKv, Strategy::kPassQ, Strategy::kAuto}) {
      for (const int32_t chunk : {68, 0}) {
        LayoutOptions layout = cp(ranks);
        layout.tp = tp;
        layout.strategy = strategy;
        layout.chunk_tokens = chunk;
        expect_bytes_as_planned(model, layout);
        if (ranks == 1 || strategy == Strategy::kPassQ) continue;
        layout.kv_mode = KvMode::kReplicated;
        expect_bytes_as_planned(model, layout);
      }
    }
  }
}

// Keys behind a window do not cross.
TEST(Ranks, NetworkBytesOfWindows) {
  const fs::path golden = golden_path("mistral-swa");
  if (!fs::exists(golden)) GTEST_SKIP() << golden << " is not here";
  const OpenModel model = open_test_model(golden.string());
  for (const int32_t interleave : {1, 16}) {
    LayoutOptions layout = cp(3, interleave);
    layout.strategy = Strategy::kPassKv;
    layout.chunk_tokens = 68;
    expect_bytes_as_planned(model, layout);
    layout.rank_shares = {1, 2, 4};
    expect_bytes_as_planned(model, layout);
  }
}

// Log-probabilities of a prompt come whole, whichever ranks computed its positions.
TEST(Ranks, PromptLogprobsOfEveryPosition) {
  const fs::path golden = golden_path("llama-gqa");
  if (!fs::exists(golden)) GTEST_SKIP() << golden << " is not here";
  const OpenModel model = open_test_model(golden.string());
  std::vector<PositionLogprobs> want;
  for (const int32_t ranks : {1, 2, 3}) {
    RankGroupUnderTest group(model, cp(ranks), 128);
    RankGroupUnderTest::Row row{RowId(1), random_ids(8, 61, 512), {}, 0, false};
    PlanRow planned = group.next(row, 61);
    planned.wanted = LogitsWanted::kAll;
    planned.prompt_logprobs = 2;
    const StepOutcome outcome = group.step({planned});
    ASSERT_EQ(outcome.rows.size(), 1u);
    const auto& got = outcome.rows[0].prompt;
    ASSERT_EQ(got.size(), 61u);
    if (ranks == 1) want = got;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i].logprob, want[i].logprob, 2e-4) << "position " << i << ", " << ranks << " ranks";
      ASSERT_LE(got[i].logprob, 0.0f);
    }
  }
}

// docs/design.md §9: with a fixed layout, strategy and chunking a row's bits do not depend on the batch.
TEST(Ranks, BitsDoNotDependOnTheBatch) {
  const fs::path golden = golden_path("llama-gqa");
  if (!fs::exists(golden)) GTEST_SKIP() << golden << " is not here";
  const OpenModel model = open_test_model(golden.string());
  for (const LayoutOptions& base : {cp(2), cp(3, 16)}) {
    for (const Strategy strategy : {Strategy::kPassKv, Strategy::kPassQ}) {
      LayoutOptions layout = base;
      layout.strategy = strategy;
      std::map<int32_t, std::vector<float>> want;
      for (const bool company : {false, true}) {
        RankGroupUnderTest group(model, layout, 600);
        std::map<int32_t, std::vector<float>> seen;
        using Row = RankGroupUnderTest::Row;
        Row row{RowId(1000), random_ids(4, 157, 512), {}, 0, false};
        std::vector<Row> others;
        for (uint32_t i = 0; company && i < 5; ++i) {
          others.push_back({RowId(2000 + i), random_ids(90 + i, 3 + 50 * i, 512), {}, 0, false});
        }
        while (row.done < static_cast<int32_t>(row.ids.size())) {
          std::vector<PlanRow> rows;
          for (size_t i = 0; i < others.size() / 2; ++i) {
            if (others[i].done < static_cast<int32_t>(others[i].ids.size()))
              rows.push_back(group.next(others[i], 11));
          }
          rows.push_back(group.next(row, 48));
          rows.back().wanted = LogitsWanted::kAll;
          rows.back().logits_count = rows.back().n;
          for (size_t i = others.size() / 2; i < others.size(); ++i) {
            if (others[i].done < static_cast<int32_t>(others[i].ids.size()))
              rows.push_back(group.next(others[i], 30));
          }
          for (const RowOutcome& r : group.step(std::move(rows)).rows) {
            for (const PositionLogits& at : r.logits) seen[at.pos] = at.values;
          }
        }
        ASSERT_EQ(seen.size(), 157u);
        if (!company) {
          want = seen;
          continue;
        }
        for (const auto& [pos, logits] : want) {
          ASSERT_EQ(std::memcmp(logits.data(), seen.at(pos).data(), logits.size() * sizeof(float)), 0)
              << "position " << pos;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lariat
