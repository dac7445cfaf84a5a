#include "http/exchange.h"

namespace lariat {
namespace {

TokenReport to_report(TokenText t) {
  TokenReport out;
  out.id = t.id;
  out.bytes = std::move(t.bytes);
  out.logprob = t.logprob;
  out.top.reserve(t.top.size());
  for (auto& a : t.top) {
    TokenReport& top = out.top.emplace_back();
    top.id = a.id;
    top.bytes = std::move(a.bytes);
    top.logprob = a.logprob;
  }
  return out;
}

std::vector<TokenReport> to_reports(std::vector<TokenText> tokens) {
  std::vector<TokenReport> out;
  out.reserve(tokens.size());
  for (TokenText& t : tokens) out.push_back(to_report(std::move(t)));
  return out;
}

}  // namespace

Exchange::Exchange(const Environment& environment, ParsedRequest request)
    : engine_(environment.engine),
      table_(environment.table),
      id_(request.id),
      running_(request.generations.size(), false),
      answer_(request, environment.codec) {
  const size_t count = request.generations.size();
  Feed::Limits limits;
  limits.pending_bytes_max = environment.pending_bytes_max;
  limits.n = request.n;
  limits.choices = count * static_cast<size_t>(request.n);
  feed_ = std::make_shared<Feed>(environment.io, environment.metrics, limits);
  generations_ = std::move(request.generations);
  for (const GenerateRequest& g : generations_) engine_ids_.push_back(g.id);
  table_[id_] = this;
}

Exchange::~Exchange() {
  cancel_rest();
  feed_->close();
  table_.erase(id_);
}

void Exchange::cancel_rest() {
  for (size_t g = 0; g < running_.size(); ++g) {
    if (running_[g]) engine_.cancel(engine_ids_[g]);
    running_[g] = false;
  }
}

Status Exchange::submit() {
  for (size_t g = 0; g < generations_.size(); ++g) {
    // The engine may keep the sink longer than this answer lives, and the feed's timer must end with its IO
    // thread.
    const std::weak_ptr<Feed> weak = feed_;
    Status status = engine_.submit(std::move(generations_[g]), [weak, g](GenerationEvents events) {
      if (const auto feed = weak.lock()) feed->push(g, std::move(events));
    });
    if (!status.ok()) {
      cancel_rest();
      return status;
    }
    running_[g] = true;
  }
  generations_.clear();
  return Ok{};
}

void Exchange::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
  cancel_rest();
  feed_->poke();
}

void Exchange::take(Feed::Item item, std::vector<std::string>* payloads) {
  const size_t g = item.generation;
  if (item.events.prompt) answer_.add_prompt(g, to_reports(std::move(item.events.prompt->tokens)));
  for (ChoiceEvent& c : item.events.choices) {
    if (c.finish == FinishReason::kError) return fail(to_api_error(c.error));
    if (c.finish == FinishReason::kCancelled) {
      return fail(to_api_error(make_error(Errc::kCancelled, "the request was cancelled")));
    }
    ChoiceReport report;
    report.choice = c.choice;
    report.text = std::move(c.text);
    report.token_ids = std::move(c.token_ids);
    report.logprobs = to_reports(std::move(c.logprobs));
    report.finish = c.finish;
    answer_.add(g, std::move(report), payloads);
  }
  if (!item.events.done) return;
  running_[g] = false;
  answer_.finish(g, {item.events.usage.prompt_tokens, item.events.usage.completion_tokens});
}

void Exchange::drain(std::vector<std::string>* payloads) {
  for (Feed::Item& item : feed_->take()) {
    if (error_) return;
    take(std::move(item), payloads);
  }
  if (feed_->overflowed() && !error_) {
    ApiError e;
    e.status = 408;
    e.type = "invalid_request_error";
    e.code = "client_too_slow";
    e.message = "the client does not read its stream";
    fail(std::move(e));
  }
}

}  // namespace lariat
