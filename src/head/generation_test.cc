#include "head/generation.h"

#include <gtest/gtest.h>

namespace lariat {
namespace {

class GenerationTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto tokenizer = Tokenizer::load("models/needle-5m");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    tokenizer_ = tokenizer->release();
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    tokenizer_ = nullptr;
  }

  Generation make() {
    return Generation(std::make_shared<const GenerateRequest>(request_), RowId(10), tokenizer_);
  }
  static std::vector<int32_t> ids(std::string_view text) {
    return *tokenizer_->encode(text, {.add_bos = false, .parse_special = false});
  }
  static SequenceEvent token(int32_t id, FinishReason finish = FinishReason::kNone, int32_t choice = 0) {
    SequenceEvent e;
    e.id = RowId(10 + static_cast<uint64_t>(choice));
    e.token = id;
    e.finish = finish;
    return e;
  }
  // Feeds the text's tokens and then the end; gathers what comes. stopped: at which token take() said so, or
  // -1.
  struct Fed {
    std::string text;
    std::vector<int32_t> tokens;
    FinishReason finish = FinishReason::kNone;
    int stopped = -1;
  };
  Fed feed(const std::vector<int32_t>& tokens, FinishReason at_end) {
    Generation g = make();
    Fed fed;
    for (size_t i = 0; i < tokens.size() && fed.stopped < 0; ++i) {
      const bool last = i + 1 == tokens.size();
      if (g.take(token(tokens[i], last ? at_end : FinishReason::kNone))) fed.stopped = static_cast<int>(i);
      while (const auto events = g.take_events()) {
        for (const ChoiceEvent& c : events->choices) {
          fed.text += c.text;
          fed.tokens.insert(fed.tokens.end(), c.token_ids.begin(), c.token_ids.end());
          EXPECT_EQ(fed.finish, FinishReason::kNone);
          fed.finish = c.finish;
        }
        EXPECT_EQ(events->done, fed.finish != FinishReason::kNone);
      }
    }
    return fed;
  }

  static inline const Tokenizer* tokenizer_ = nullptr;
  GenerateRequest request_ = [] {
    GenerateRequest r;
    r.prompt = {1, 2, 3};
    r.max_tokens = 100;
    return r;
  }();
};

TEST_F(GenerationTest, TextIsTheTokensText) {
  const std::string text = "The pass key is 71432. \xc3\xa9\xf0\x9f\xa6\x99!";
  const Fed fed = feed(ids(text), FinishReason::kLength);
  EXPECT_EQ(fed.text, text);
  EXPECT_EQ(fed.tokens, ids(text));
  EXPECT_EQ(fed.finish, FinishReason::kLength);
}

TEST_F(GenerationTest, AStopStringAcrossTokensCutsTheTextAndAsksForTheRow) {
  request_.stop = {"key is"};
  const auto tokens = ids("The pass key is 71432");
  const Fed fed = feed(tokens, FinishReason::kLength);
  EXPECT_EQ(fed.text, "The pass ");
  EXPECT_EQ(fed.finish, FinishReason::kStop);
  EXPECT_GE(fed.stopped, 0);
  EXPECT_LT(static_cast<size_t>(fed.stopped) + 1, tokens.size());
  EXPECT_EQ(fed.tokens.size(), static_cast<size_t>(fed.stopped) + 1) << "the stop's own tokens count";
}

TEST_F(GenerationTest, AStopStringInTheLastTokenNeedsNoCancel) {
  request_.stop = {"71432"};
  const Fed fed = feed(ids("key 71432"), FinishReason::kLength);
  EXPECT_EQ(fed.text, "key ");
  EXPECT_EQ(fed.finish, FinishReason::kStop);
  EXPECT_EQ(fed.stopped, -1) << "the row has ended by itself";
}

TEST_F(GenerationTest, WhatWasHeldForAStopThatDidNotComeIsDeliveredAtTheEnd) {
  request_.stop = {"is 99999"};
  const Fed fed = feed(ids("key is 9999"), FinishReason::kLength);
  EXPECT_EQ(fed.text, "key is 9999");
}

TEST_F(GenerationTest, AnEndTokenIsNoTextNoIdAndCounts) {
  request_.top_logprobs = 0;
  Generation g = make();
  SequenceEvent end =
      token(tokenizer_->eos_ids().empty() ? 0 : tokenizer_->eos_ids()[0], FinishReason::kStop);
  end.end_token = true;
  EXPECT_FALSE(g.take(end));
  const auto events = g.take_events();
  ASSERT_TRUE(events);
  EXPECT_TRUE(events->done);
  EXPECT_EQ(events->choices[0].text, "");
  EXPECT_TRUE(events->choices[0].token_ids.empty());
  EXPECT_TRUE(events->choices[0].logprobs.empty());
  EXPECT_EQ(events->choices[0].finish, FinishReason::kStop);
  EXPECT_EQ(events->usage.completion_tokens, 1);
}

TEST_F(GenerationTest, LogprobsCarryTheTokensBytes) {
  request_.top_logprobs = 1;
  Generation g = make();
  const int32_t id = ids("key")[0];
  SequenceEvent e = token(id);
  e.token_logprobs.logprob = -0.5f;
  e.token_logprobs.top = {{ids(" 7")[0], -0.25f}};
  g.take(e);
  const auto events = g.take_events();
  ASSERT_TRUE(events);
  ASSERT_EQ(events->choices[0].logprobs.size(), 1u);
  const TokenText& t = events->choices[0].logprobs[0];
  EXPECT_EQ(t.id, id);
  EXPECT_EQ(t.bytes, tokenizer_->token_bytes(id));
  EXPECT_EQ(t.logprob, -0.5f);
  ASSERT_EQ(t.top.size(), 1u);
  EXPECT_EQ(t.top[0].bytes, tokenizer_->token_bytes(ids(" 7")[0]));
}

TEST_F(GenerationTest, ChoicesWaitForThePromptThatAnotherChoiceReports) {
  request_.n = 2;
  request_.prompt_logprobs = 0;
  Generation g = make();
  g.take(token(5, FinishReason::kNone, 1));
  EXPECT_FALSE(g.take_events());
  SequenceEvent part;
  part.id = RowId(10);
  part.prompt = {{-1.0f, {}}};
  g.take(part);
  EXPECT_FALSE(g.take_events());
  SequenceEvent rest = token(6);
  rest.prompt = {{-2.0f, {}}};
  g.take(rest);
  const auto events = g.take_events();
  ASSERT_TRUE(events && events->prompt);
  ASSERT_EQ(events->prompt->tokens.size(), 3u);
  EXPECT_EQ(events->prompt->tokens[2].id, 3);
  EXPECT_EQ(events->prompt->tokens[2].logprob, -2.0f);
  ASSERT_EQ(events->choices.size(), 2u);
  EXPECT_EQ(events->choices[0].choice, 1);
}

TEST_F(GenerationTest, APromptThatWillNotComeHoldsNobody) {
  request_.n = 2;
  request_.prompt_logprobs = 0;
  Generation g = make();
  SequenceEvent failed;
  failed.id = RowId(10);
  failed.finish = FinishReason::kError;
  failed.error = make_error(Errc::kInternal, "NaN in the logits");
  g.take(failed);
  g.take(token(5, FinishReason::kLength, 1));
  const auto events = g.take_events();
  ASSERT_TRUE(events);
  EXPECT_FALSE(events->prompt);
  EXPECT_EQ(events->choices.size(), 2u);
  EXPECT_TRUE(events->done);
  EXPECT_TRUE(g.failed());
}

TEST_F(GenerationTest, FailingEndsTheOpenChoicesOnly) {
  request_.n = 2;
  Generation g = make();
  g.take(token(5, FinishReason::kLength, 0));
  g.fail(make_error(Errc::kUnavailable, "the server is shutting down"));
  const auto events = g.take_events();
  ASSERT_TRUE(events);
  ASSERT_EQ(events->choices.size(), 2u);
  EXPECT_EQ(events->choices[0].finish, FinishReason::kLength);
  EXPECT_EQ(events->choices[1].choice, 1);
  EXPECT_EQ(events->choices[1].finish, FinishReason::kError);
  EXPECT_EQ(events->choices[1].error.message, "the server is shutting down");
  EXPECT_TRUE(events->done);
}

}  // namespace
}  // namespace lariat
