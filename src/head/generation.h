// One request under way: what the scheduler reports of its rows becomes text, log-probabilities and usage.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "head/engine.h"
#include "sched/sequence.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace lariat {

// A choice's tokens as text. Without a tokenizer there is no text, and no stop strings.
class ChoiceText {
 public:
  ChoiceText(const Tokenizer* tokenizer, const std::vector<std::string>& stops);

  struct Piece {
    std::string text;
    bool stopped = false;  // a stop string came whole; nothing follows
  };
  Piece feed(int32_t token);
  // What was held back, when the choice ends for another reason. May complete a stop string.
  Piece finish();

 private:
  std::optional<StreamDecoder> decoder_;
  StopMatcher stops_;
};

// Not thread-safe. Events gather until take_events().
class Generation {
 public:
  // first_row: the id of choice 0's row; choice c has first_row + c. The tokenizer, if any, outlives it.
  Generation(std::shared_ptr<const GenerateRequest> request, RowId first_row, const Tokenizer* tokenizer);

  const GenerateRequest& request() const { return *request_; }
  RowId row(int32_t choice) const { return RowId(first_row_.get() + static_cast<uint64_t>(choice)); }

  // Takes what one step did for one of its rows. True if a stop string has ended the choice: the row is to be
  // cancelled.
  bool take(SequenceEvent event);
  // Ends every choice that has not ended.
  void fail(const Error& error);

  bool choice_done(int32_t choice) const { return choices_[static_cast<size_t>(choice)].done; }
  bool done() const { return open_ == 0; }
  bool failed() const { return failed_; }
  const Usage& usage() const { return usage_; }
  // What has gathered; nothing while there is none. Choices wait for the prompt's event if one was asked for.
  std::optional<GenerationEvents> take_events();

 private:
  struct Choice {
    ChoiceText text;
    bool done = false;
  };
  TokenText token_text(int32_t id, const PositionLogprobs& logprobs) const;
  void end_text(Choice& choice, ChoiceEvent& out);
  void close(Choice& choice) {
    choice.done = true;
    --open_;
  }

  const std::shared_ptr<const GenerateRequest> request_;
  const RowId first_row_;
  const Tokenizer* tokenizer_;
  std::vector<Choice> choices_;
  int32_t open_ = 0;
  bool failed_ = false;
  Usage usage_;
  std::optional<PromptEvent> prompt_;  // while it gathers
  std::vector<ChoiceEvent> events_;
};

}  // namespace lariat
