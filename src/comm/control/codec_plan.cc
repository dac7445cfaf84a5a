#include "comm/control/codec_plan.h"

#include "control.pb.h"

namespace lariat {
namespace {

// Length of the UTF-8 character at the front of `s`, 0 if there is none (RFC 3629: no overlong forms, no
// surrogates, nothing past U+10FFFF).
size_t utf8_length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || s.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

void encode_sampling(const PlanSampling& s, control_v1::Sampling& out) {
  out.set_temperature(s.temperature);
  out.set_top_k(s.top_k);
  out.set_top_p(s.top_p);
  out.set_min_p(s.min_p);
  out.set_repetition_penalty(s.repetition_penalty);
  out.set_presence_penalty(s.presence_penalty);
  out.set_frequency_penalty(s.frequency_penalty);
  out.set_seed(s.seed);
  out.set_choice(s.choice);
  out.set_output_index(s.output_index);
  out.set_top_logprobs(s.top_logprobs);
  for (const PlanTokenCount& c : s.counts) {
    auto& b = *out.add_counts();
    b.set_id(c.id);
    b.set_in_output(c.in_output);
    b.set_in_prompt(c.in_prompt);
  }
  for (const auto& [id, value] : s.logit_bias) {
    out.add_bias_ids(id);
    out.add_bias_values(value);
  }
  out.mutable_banned()->Add(s.banned.begin(), s.banned.end());
  out.mutable_allowed()->Add(s.allowed.begin(), s.allowed.end());
}

Result<PlanSampling> decode_sampling(const control_v1::Sampling& in) {
  PlanSampling s;
  s.temperature = in.temperature();
  s.top_k = in.top_k();
  s.top_p = in.top_p();
  s.min_p = in.min_p();
  s.repetition_penalty = in.repetition_penalty();
  s.presence_penalty = in.presence_penalty();
  s.frequency_penalty = in.frequency_penalty();
  s.seed = in.seed();
  s.choice = in.choice();
  s.output_index = in.output_index();
  s.top_logprobs = in.top_logprobs();
  for (const auto& b : in.counts()) s.counts.push_back({b.id(), b.in_output(), b.in_prompt()});
  if (in.bias_ids_size() != in.bias_values_size())
    return make_error(Errc::kCorruptData, fmt::format("sampling.bias has {} ids and {} values",
                                                      in.bias_ids_size(), in.bias_values_size()));
  for (int i = 0; i < in.bias_ids_size(); ++i) s.logit_bias.emplace_back(in.bias_ids(i), in.bias_values(i));
  s.banned.assign(in.banned().begin(), in.banned().end());
  s.allowed.assign(in.allowed().begin(), in.allowed().end());
  return s;
}

void encode_row(const PlanRow& row, control_v1::Row& out) {
  out.set_id(row.id.get());
  for (const auto& table : row.pages) {
    auto& pages = *out.add_tables()->mutable_pages();
    pages.Reserve(static_cast<int>(table.size()));
    for (const PageId page : table) pages.AddAlreadyReserved(page.get());
  }
  out.set_pos0(row.pos0);
  out.set_n(row.n);
  out.mutable_tokens()->Add(row.tokens.begin(), row.tokens.end());
  out.set_use_prev(row.use_prev);
  out.set_strategy(static_cast<uint32_t>(row.strategy));
  out.set_wanted(static_cast<uint32_t>(row.wanted));
  out.set_sample(row.sample);
  encode_sampling(row.sampling, *out.mutable_sampling());
  out.set_prompt_logprobs(row.prompt_logprobs);
  out.set_next_token(row.next_token);
  out.set_logits_first(row.logits_first);
  out.set_logits_count(row.logits_count);
}

Result<PlanRow> decode_row(const control_v1::Row& in) {
  PlanRow row;
  row.id = RowId(in.id());
  for (const auto& table : in.tables()) {
    auto& pages = row.pages.emplace_back();
    pages.reserve(static_cast<size_t>(table.pages_size()));
    for (const int32_t page : table.pages()) pages.emplace_back(page);
  }
  row.pos0 = in.pos0();
  row.n = in.n();
  row.tokens.assign(in.tokens().begin(), in.tokens().end());
  row.use_prev = in.use_prev();
  LARIAT_ASSIGN(row.strategy, (decode_enum<Strategy, Strategy::kGather>(in.strategy(), "row.strategy")));
  LARIAT_ASSIGN(row.wanted, (decode_enum<LogitsWanted, LogitsWanted::kAll>(in.wanted(), "row.wanted")));
  row.sample = in.sample();
  LARIAT_ASSIGN(row.sampling, decode_sampling(in.sampling()));
  row.prompt_logprobs = in.prompt_logprobs();
  row.next_token = in.next_token();
  row.logits_first = in.logits_first();
  row.logits_count = in.logits_count();
  return row;
}

void encode_logprobs(const PositionLogprobs& p, control_v1::PositionLogprobs& out) {
  out.set_logprob(p.logprob);
  for (const PlanTokenLogprob& t : p.top) {
    auto& b = *out.add_top();
    b.set_id(t.id);
    b.set_logprob(t.logprob);
  }
}

PositionLogprobs decode_logprobs(const control_v1::PositionLogprobs& in) {
  PositionLogprobs p;
  p.logprob = in.logprob();
  for (const auto& b : in.top()) p.top.push_back({b.id(), b.logprob()});
  return p;
}

}  // namespace

std::string utf8_or_escaped(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t length = utf8_length(rest);
    if (length == 0) break;
    rest.remove_prefix(length);
  }
  if (rest.empty()) return std::string(text);
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      escaped += c;
    } else {
      escaped += fmt::format("\\x{:02x}", byte);
    }
  }
  return escaped;
}

void encode_plan(const StepPlan& plan, control_v1::Plan& out) {
  out.set_epoch(plan.epoch.get());
  out.set_step(plan.step.get());
  for (const PlanRow& row : plan.rows) encode_row(row, *out.add_rows());
  for (const RowId id : plan.forget) out.add_forget(id.get());
  out.set_schedule_hash_low(plan.schedule_hash[0]);
  out.set_schedule_hash_high(plan.schedule_hash[1]);
}

Result<StepPlan> decode_plan(const control_v1::Plan& in) {
  StepPlan plan;
  plan.epoch = Epoch(in.epoch());
  plan.step = StepId(in.step());
  for (const auto& b : in.rows()) {
    LARIAT_ASSIGN(PlanRow row, decode_row(b));
    plan.rows.push_back(std::move(row));
  }
  for (const uint64_t id : in.forget()) plan.forget.emplace_back(id);
  plan.schedule_hash[0] = in.schedule_hash_low();
  plan.schedule_hash[1] = in.schedule_hash_high();
  return plan;
}

void encode_outcome(const StepOutcome& outcome, control_v1::Outcome& out) {
  out.set_epoch(outcome.epoch.get());
  out.set_step(outcome.step.get());
  for (const RowOutcome& row : outcome.rows) {
    auto& b = *out.add_rows();
    b.set_id(row.id.get());
    b.set_token(row.token);
    encode_logprobs(row.token_logprobs, *b.mutable_token_logprobs());
    for (const PositionLogprobs& p : row.prompt) encode_logprobs(p, *b.add_prompt());
    for (const PositionLogits& l : row.logits) {
      auto& logits = *b.add_logits();
      logits.set_pos(l.pos);
      logits.mutable_values()->Add(l.values.begin(), l.values.end());
    }
    b.set_failed(row.failed);
    b.set_error(static_cast<uint32_t>(row.error));
    b.set_message(utf8_or_escaped(row.message));
  }
  out.set_compute_us(outcome.compute_us);
  out.set_comm_wait_us(outcome.comm_wait_us);
}

Result<StepOutcome> decode_outcome(const control_v1::Outcome& in) {
  StepOutcome outcome;
  outcome.epoch = Epoch(in.epoch());
  outcome.step = StepId(in.step());
  for (const auto& b : in.rows()) {
    RowOutcome& row = outcome.rows.emplace_back();
    row.id = RowId(b.id());
    row.token = b.token();
    row.token_logprobs = decode_logprobs(b.token_logprobs());
    for (const auto& p : b.prompt()) row.prompt.push_back(decode_logprobs(p));
    for (const auto& l : b.logits()) row.logits.push_back({l.pos(), {l.values().begin(), l.values().end()}});
    row.failed = b.failed();
    LARIAT_ASSIGN(row.error, (decode_enum<Errc, Errc::kInternal>(b.error(), "outcome.rows.error")));
    row.message = b.message();
  }
  outcome.compute_us = in.compute_us();
  outcome.comm_wait_us = in.comm_wait_us();
  return outcome;
}

}  // namespace lariat
