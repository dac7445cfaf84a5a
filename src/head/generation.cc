#include "head/generation.h"

#include <utility>

namespace lariat {

ChoiceText::ChoiceText(const Tokenizer* tokenizer, const std::vector<std::string>& stops) : stops_(stops) {
  if (tokenizer != nullptr) decoder_.emplace(*tokenizer, /*skip_special=*/true);
}

ChoiceText::Piece ChoiceText::feed(int32_t token) {
  if (!decoder_) return {};
  StopMatcher::Output out = stops_.feed(decoder_->feed(token));
  return {std::move(out.text), out.stopped};
}

ChoiceText::Piece ChoiceText::finish() {
  if (!decoder_) return {};
  StopMatcher::Output out = stops_.feed(decoder_->finish());
  if (!out.stopped) out.text += stops_.finish();
  return {std::move(out.text), out.stopped};
}

Generation::Generation(std::shared_ptr<const GenerateRequest> request, RowId first_row,
                       const Tokenizer* tokenizer)
    : request_(std::move(request)), first_row_(first_row), tokenizer_(tokenizer), open_(request_->n) {
  for (int32_t c = 0; c < request_->n; ++c)
    choices_.push_back({ChoiceText(tokenizer, request_->stop), false});
  usage_.prompt_tokens = static_cast<int64_t>(request_->prompt.size());
  if (request_->prompt_logprobs >= 0) {
    prompt_.emplace();
    prompt_->tokens.push_back(token_text(request_->prompt[0], {}));
  }
}

TokenText Generation::token_text(int32_t id, const PositionLogprobs& logprobs) const {
  const auto bytes = [&](int32_t token) {
    return tokenizer_ != nullptr ? std::string(tokenizer_->token_bytes(token)) : std::string();
  };
  TokenText text{id, bytes(id), logprobs.logprob, {}};
  for (const PlanTokenLogprob& t : logprobs.top) text.top.push_back({t.id, bytes(t.id), t.logprob});
  return text;
}

bool Generation::take(SequenceEvent event) {
  const auto index = static_cast<size_t>(event.id.get() - first_row_.get());
  Choice& choice = choices_.at(index);
  LARIAT_CHECK(!choice.done, "news of choice {} after its end", index);
  if (prompt_) {
    for (const PositionLogprobs& p : event.prompt)
      prompt_->tokens.push_back(token_text(request_->prompt.at(prompt_->tokens.size()), p));
  }
  if (!event.token && event.finish == FinishReason::kNone) return false;
  ChoiceEvent out;
  out.choice = static_cast<int32_t>(index);
  out.finish = event.finish;
  out.error = std::move(event.error);
  bool stopped = false;
  if (event.token) ++usage_.completion_tokens;
  if (event.token && !event.end_token) {
    out.token_ids.push_back(*event.token);
    if (request_->top_logprobs >= 0) out.logprobs.push_back(token_text(*event.token, event.token_logprobs));
    ChoiceText::Piece piece = choice.text.feed(*event.token);
    out.text = std::move(piece.text);
    stopped = piece.stopped;
  }
  const bool row_goes_on = out.finish == FinishReason::kNone;
  if (stopped) {
    out.finish = FinishReason::kStop;
  } else if (!row_goes_on) {
    end_text(choice, out);
  }
  if (out.finish == FinishReason::kError) failed_ = true;
  if (out.finish != FinishReason::kNone) close(choice);
  events_.push_back(std::move(out));
  return stopped && row_goes_on;
}

void Generation::end_text(Choice& choice, ChoiceEvent& out) {
  ChoiceText::Piece piece = choice.text.finish();
  out.text += piece.text;
  if (piece.stopped && out.finish == FinishReason::kLength) out.finish = FinishReason::kStop;
}

void Generation::fail(const Error& error) {
  for (size_t c = 0; c < choices_.size(); ++c) {
    if (choices_[c].done) continue;
    ChoiceEvent out;
    out.choice = static_cast<int32_t>(c);
    out.finish = FinishReason::kError;
    out.error = error;
    end_text(choices_[c], out);
    close(choices_[c]);
    events_.push_back(std::move(out));
  }
  failed_ = true;
}

std::optional<GenerationEvents> Generation::take_events() {
  GenerationEvents out;
  // Choice 0 reports the prompt; when it has ended in an error the rest of the prompt will not come.
  if (prompt_ && (prompt_->tokens.size() == request_->prompt.size() || choices_[0].done)) {
    if (prompt_->tokens.size() == request_->prompt.size()) out.prompt = std::move(*prompt_);
    prompt_.reset();
  }
  if (prompt_) return std::nullopt;
  if (events_.empty() && !out.prompt) return std::nullopt;
  out.choices = std::exchange(events_, {});
  out.done = done();
  out.usage = usage_;
  return out;
}

}  // namespace lariat
