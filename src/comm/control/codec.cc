#include "comm/control/codec.h"

#include <climits>

#include "comm/control/codec_plan.h"
#include "control.pb.h"

namespace lariat {
namespace {

template <class Pb>
Status check_size(const Pb& message) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes <= kControlMessageBytesMax) return Ok{};
  return make_error(
      Errc::kResourceExhausted,
      fmt::format("a control message of {} bytes is over the limit of {}", bytes, kControlMessageBytesMax));
}

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

void encode_hello(const RankHello& m, control_v1::Hello& out) {
  const Hello& h = m.hello;
  out.set_epoch(m.epoch.get());
  out.set_protocol_major(h.protocol_major);
  out.set_protocol_minor(h.protocol_minor);
  out.set_build_id(h.build_id);
  out.set_weights_hash_low(h.weights_hash[0]);
  out.set_weights_hash_high(h.weights_hash[1]);
  out.set_kv_type(h.kv_type);
  out.mutable_store_pattern()->Add(h.store_pattern.begin(), h.store_pattern.end());
  out.mutable_compute_pattern()->Add(h.compute_pattern.begin(), h.compute_pattern.end());
  out.set_interleave(h.interleave);
  out.set_ring_block(h.ring_block);
  out.set_device(h.device);
  out.set_rank(h.rank);
  out.set_world(h.world);
  out.set_pid(h.pid);
  out.set_page_tokens(h.page_tokens);
  out.set_pages_total(h.pages_total);
  out.set_cache_groups(h.cache_groups);
  out.set_vocab(h.vocab);
}

RankHello decode_hello(const control_v1::Hello& in) {
  RankHello m;
  Hello& h = m.hello;
  m.epoch = Epoch(in.epoch());
  h.protocol_major = in.protocol_major();
  h.protocol_minor = in.protocol_minor();
  h.build_id = in.build_id();
  h.weights_hash[0] = in.weights_hash_low();
  h.weights_hash[1] = in.weights_hash_high();
  h.kv_type = in.kv_type();
  h.store_pattern.assign(in.store_pattern().begin(), in.store_pattern().end());
  h.compute_pattern.assign(in.compute_pattern().begin(), in.compute_pattern().end());
  h.interleave = in.interleave();
  h.ring_block = in.ring_block();
  h.device = in.device();
  h.rank = in.rank();
  h.world = in.world();
  h.pid = in.pid();
  h.page_tokens = in.page_tokens();
  h.pages_total = in.pages_total();
  h.cache_groups = in.cache_groups();
  h.vocab = in.vocab();
  return m;
}

void encode_failure(const RankFailure& m, control_v1::Failure& out) {
  out.set_epoch(m.epoch.get());
  out.set_step(m.step.get());
  out.set_kind(static_cast<uint32_t>(m.kind));
  out.set_error(static_cast<uint32_t>(m.error.code));
  out.set_message(utf8_or_escaped(m.error.message));
  out.set_param(utf8_or_escaped(m.error.param));
}

Result<RankFailure> decode_failure(const control_v1::Failure& in) {
  RankFailure m;
  m.epoch = Epoch(in.epoch());
  m.step = StepId(in.step());
  LARIAT_ASSIGN(m.kind, (decode_enum<FailureKind, FailureKind::kRefused>(in.kind(), "failure.kind")));
  LARIAT_ASSIGN(m.error.code, (decode_enum<Errc, Errc::kInternal>(in.error(), "failure.error")));
  m.error.message = in.message();
  m.error.param = in.param();
  return m;
}

template <class Pb, class Message>
Result<std::string> bytes_of(const Message& message) {
  Pb pb;
  LARIAT_RETURN_IF_ERROR(encode(message, pb));
  return pb.SerializeAsString();
}

template <class Pb>
Status parse(std::string_view bytes, Pb& pb) {
  static_assert(kControlMessageBytesMax <= INT_MAX);
  if (bytes.size() > kControlMessageBytesMax)
    return make_error(Errc::kResourceExhausted,
                      fmt::format("a control message of {} bytes is over the limit of {}", bytes.size(),
                                  kControlMessageBytesMax));
  if (!pb.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return make_error(Errc::kCorruptData, "a control message does not parse");
  return Ok{};
}

}  // namespace

Status encode(const ToRank& message, control_v1::ToRank& out) {
  out.Clear();
  std::visit(Overloaded{[&](const StartRank& m) {
                          auto& b = *out.mutable_start();
                          b.set_epoch(m.epoch.get());
                          b.set_rank(m.rank);
                          b.set_world(m.world);
                          b.set_protocol_major(m.protocol_major);
                          b.set_protocol_minor(m.protocol_minor);
                          b.set_build_id(m.build_id);
                        },
                        [&](const StepPlan& m) { encode_plan(m, *out.mutable_plan()); },
                        [&](const AbortStep& m) {
                          out.mutable_abort()->set_epoch(m.epoch.get());
                          out.mutable_abort()->set_step(m.step.get());
                        },
                        [&](const ShutdownRank& m) { out.mutable_shutdown()->set_epoch(m.epoch.get()); }},
             message);
  return check_size(out);
}

Status encode(const FromRank& message, control_v1::FromRank& out) {
  out.Clear();
  std::visit(Overloaded{[&](const RankHello& m) { encode_hello(m, *out.mutable_hello()); },
                        [&](const LoadProgress& m) {
                          auto& b = *out.mutable_progress();
                          b.set_epoch(m.epoch.get());
                          b.set_fraction(m.fraction);
                          b.set_what(utf8_or_escaped(m.what));
                        },
                        [&](const Heartbeat& m) {
                          auto& b = *out.mutable_heartbeat();
                          b.set_epoch(m.epoch.get());
                          b.set_step(m.step.get());
                          b.set_kicks(m.kicks);
                          b.set_rss_bytes(m.rss_bytes);
                        },
                        [&](const StepOutcome& m) { encode_outcome(m, *out.mutable_outcome()); },
                        [&](const RankFailure& m) { encode_failure(m, *out.mutable_failure()); }},
             message);
  return check_size(out);
}

Result<ToRank> decode(const control_v1::ToRank& in) {
  switch (in.body_case()) {
    case control_v1::ToRank::kStart: {
      const auto& b = in.start();
      return ToRank(StartRank{Epoch(b.epoch()), b.rank(), b.world(), b.protocol_major(), b.protocol_minor(),
                              b.build_id()});
    }
    case control_v1::ToRank::kPlan: {
      LARIAT_ASSIGN(StepPlan plan, decode_plan(in.plan()));
      return ToRank(std::move(plan));
    }
    case control_v1::ToRank::kAbort:
      return ToRank(AbortStep{Epoch(in.abort().epoch()), StepId(in.abort().step())});
    case control_v1::ToRank::kShutdown:
      return ToRank(ShutdownRank{Epoch(in.shutdown().epoch())});
    case control_v1::ToRank::BODY_NOT_SET:
      break;
  }
  return make_error(Errc::kCorruptData, "a message to a rank has no body this build knows");
}

Result<FromRank> decode(const control_v1::FromRank& in) {
  switch (in.body_case()) {
    case control_v1::FromRank::kHello:
      return FromRank(decode_hello(in.hello()));
    case control_v1::FromRank::kProgress:
      return FromRank(
          LoadProgress{Epoch(in.progress().epoch()), in.progress().fraction(), in.progress().what()});
    case control_v1::FromRank::kHeartbeat: {
      const auto& b = in.heartbeat();
      return FromRank(Heartbeat{Epoch(b.epoch()), StepId(b.step()), b.kicks(), b.rss_bytes()});
    }
    case control_v1::FromRank::kOutcome: {
      LARIAT_ASSIGN(StepOutcome outcome, decode_outcome(in.outcome()));
      return FromRank(std::move(outcome));
    }
    case control_v1::FromRank::kFailure: {
      LARIAT_ASSIGN(RankFailure failure, decode_failure(in.failure()));
      return FromRank(std::move(failure));
    }
    case control_v1::FromRank::BODY_NOT_SET:
      break;
  }
  return make_error(Errc::kCorruptData, "a message from a rank has no body this build knows");
}

Result<std::string> to_bytes(const ToRank& message) {
  return bytes_of<control_v1::ToRank>(message);
}

Result<std::string> to_bytes(const FromRank& message) {
  return bytes_of<control_v1::FromRank>(message);
}

Result<ToRank> to_rank_from_bytes(std::string_view bytes) {
  control_v1::ToRank pb;
  LARIAT_RETURN_IF_ERROR(parse(bytes, pb));
  return decode(pb);
}

Result<FromRank> from_rank_from_bytes(std::string_view bytes) {
  control_v1::FromRank pb;
  LARIAT_RETURN_IF_ERROR(parse(bytes, pb));
  return decode(pb);
}

}  // namespace lariat
