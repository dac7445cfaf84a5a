#include "api/answer.h"

#include "api/logprobs.h"

namespace lariat {
namespace {

WireJson finish_json(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kNone:
    case FinishReason::kCancelled:
    case FinishReason::kError:
      break;  // such an answer ends as an error and never gets here with a choice
  }
  return nullptr;
}

}  // namespace

Answer::Answer(const ParsedRequest& request, const TextCodec* codec)
    : kind_(request.kind),
      id_(request.id),
      model_(request.model),
      created_(request.created),
      n_(request.n),
      include_usage_(request.include_usage),
      logprobs_(request.logprobs),
      return_token_ids_(request.return_token_ids) {
  generations_.resize(request.generations.size());
  for (size_t i = 0; i < generations_.size(); ++i) {
    Generation& g = generations_[i];
    g.choices.resize(static_cast<size_t>(n_));
    for (Choice& c : g.choices) {
      if (logprobs_) c.logprobs = kind_ == ApiKind::kChat ? WireJson::array() : empty_completion_logprobs();
    }
    if (!request.echo) continue;
    g.echo = request.echo_text[i];
    const auto& ids = request.generations[i].prompt;
    if (codec != nullptr && codec->bos_id() && ids.front() == *codec->bos_id()) {
      g.bos_hidden = !g.echo.starts_with(codec->token_bytes(ids.front()));
    }
  }
}

void Answer::add_prompt(size_t g, std::vector<TokenReport> tokens) {
  generations_[g].prompt_tokens = std::move(tokens);
}

WireJson Answer::prompt_logprobs(const Generation& g, Choice& c) const {
  WireJson arrays = empty_completion_logprobs();
  for (size_t i = 0; i < g.prompt_tokens.size(); ++i) {
    const TokenReport& t = g.prompt_tokens[i];
    const int64_t offset = i == 0 && g.bos_hidden ? 0 : c.offsets.next(t.bytes);
    append_completion_logprob(t, i > 0, offset, arrays);
  }
  return arrays;
}

WireJson Answer::logprobs_of(Choice& c, const std::vector<TokenReport>& tokens) const {
  if (!logprobs_) return nullptr;
  if (kind_ == ApiKind::kChat) {
    WireJson list = WireJson::array();
    for (const TokenReport& t : tokens) list.push_back(chat_logprob(t));
    return list;
  }
  WireJson arrays = empty_completion_logprobs();
  for (const TokenReport& t : tokens) append_completion_logprob(t, true, c.offsets.next(t.bytes), arrays);
  return arrays;
}

WireJson Answer::envelope(bool chunk) const {
  const char* object = kind_ == ApiKind::kCompletion ? "text_completion"
                       : chunk                       ? "chat.completion.chunk"
                                                     : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

WireJson Answer::chunk_choice(int32_t index, std::string text, WireJson logprobs) const {
  WireJson choice = {{"index", index}};
  if (kind_ == ApiKind::kChat) {
    choice["delta"] = {{"content", std::move(text)}};
    choice["logprobs"] = logprobs.is_null() ? WireJson(nullptr) : WireJson{{"content", std::move(logprobs)}};
  } else {
    choice["text"] = std::move(text);
    choice["logprobs"] = std::move(logprobs);
  }
  choice["finish_reason"] = nullptr;
  return choice;
}

void Answer::send(WireJson choice, std::vector<std::string>& payloads) const {
  WireJson chunk = envelope(true);
  chunk["choices"] = WireJson::array();
  chunk["choices"].push_back(std::move(choice));
  if (include_usage_) chunk["usage"] = nullptr;
  payloads.push_back(to_wire(chunk));
}

// What precedes a choice's first token: the role in a chat, the prompt with echo.
void Answer::start(Generation& g, Choice& c, int32_t index, std::vector<std::string>* payloads) {
  c.started = true;
  if (kind_ == ApiKind::kChat) {
    if (payloads == nullptr) return;
    WireJson choice = chunk_choice(index, "", nullptr);
    choice["delta"] = {{"role", "assistant"}, {"content", ""}};
    return send(std::move(choice), *payloads);
  }
  c.text = g.echo;
  WireJson logprobs;
  if (logprobs_ && !g.prompt_tokens.empty()) {
    logprobs = prompt_logprobs(g, c);
    append_arrays(logprobs, c.logprobs);
  } else {
    c.offsets.skip_text(g.echo);
  }
  if (payloads != nullptr && !(g.echo.empty() && logprobs.is_null())) {
    send(chunk_choice(index, g.echo, std::move(logprobs)), *payloads);
  }
}

void Answer::add(size_t g, ChoiceReport report, std::vector<std::string>* payloads) {
  Generation& generation = generations_[g];
  LARIAT_CHECK(report.choice >= 0 && report.choice < n_, "choice {} of {}", report.choice, n_);
  Choice& c = generation.choices[static_cast<size_t>(report.choice)];
  LARIAT_CHECK(c.finish == FinishReason::kNone, "choice {} goes on after its end", report.choice);
  const int32_t index = static_cast<int32_t>(g) * n_ + report.choice;
  if (!c.started) start(generation, c, index, payloads);
  WireJson logprobs = logprobs_of(c, report.logprobs);
  c.finish = report.finish;
  if (payloads == nullptr) {
    c.text += report.text;
    c.token_ids.insert(c.token_ids.end(), report.token_ids.begin(), report.token_ids.end());
    if (!logprobs_) return;
    if (kind_ == ApiKind::kCompletion) return append_arrays(logprobs, c.logprobs);
    for (auto& entry : logprobs) c.logprobs.push_back(std::move(entry));
    return;
  }
  const bool shows_ids = return_token_ids_ && !report.token_ids.empty();
  if (!report.text.empty() || (logprobs_ && !report.logprobs.empty()) || shows_ids) {
    WireJson choice = chunk_choice(index, std::move(report.text), std::move(logprobs));
    if (return_token_ids_) choice["token_ids"] = report.token_ids;
    send(std::move(choice), *payloads);
  }
  if (report.finish == FinishReason::kNone) return;
  WireJson choice = chunk_choice(index, "", nullptr);
  if (kind_ == ApiKind::kChat) choice["delta"] = WireJson::object();
  choice["finish_reason"] = finish_json(report.finish);
  send(std::move(choice), *payloads);
}

void Answer::finish(size_t g, UsageReport usage) {
  generations_[g].usage = usage;
  ++finished_;
}

WireJson Answer::usage_json() const {
  UsageReport sum;
  for (const Generation& g : generations_) {
    sum.prompt_tokens += g.usage.prompt_tokens;
    sum.completion_tokens += g.usage.completion_tokens;
  }
  return {{"prompt_tokens", sum.prompt_tokens},
          {"completion_tokens", sum.completion_tokens},
          {"total_tokens", sum.prompt_tokens + sum.completion_tokens}};
}

std::string Answer::usage_payload() const {
  WireJson chunk = envelope(true);
  chunk["choices"] = WireJson::array();
  chunk["usage"] = usage_json();
  return to_wire(chunk);
}

std::string Answer::body() const {
  LARIAT_CHECK(finished());
  WireJson out = envelope(false);
  WireJson choices = WireJson::array();
  int32_t index = 0;
  for (const Generation& g : generations_) {
    for (const Choice& c : g.choices) {
      WireJson choice = {{"index", index++}};
      if (kind_ == ApiKind::kChat) {
        choice["message"] = {{"role", "assistant"}, {"content", c.text}, {"refusal", nullptr}};
        choice["logprobs"] = logprobs_ ? WireJson{{"content", c.logprobs}, {"refusal", nullptr}} : WireJson();
      } else {
        choice["text"] = c.text;
        choice["logprobs"] = c.logprobs;
      }
      if (return_token_ids_) choice["token_ids"] = c.token_ids;
      choice["finish_reason"] = finish_json(c.finish);
      choices.push_back(std::move(choice));
    }
  }
  out["choices"] = std::move(choices);
  out["usage"] = usage_json();
  return to_wire(out);
}

}  // namespace lariat
