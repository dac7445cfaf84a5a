#include "http/metrics.h"

#include <fmt/core.h>

namespace lariat {
namespace {

void line(std::string& out, std::string_view type, std::string_view name, std::string_view help,
          int64_t value) {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
}

// One sample a rank.
template <typename Value>
void by_rank(std::string& out, std::string_view type, std::string_view name, std::string_view help,
             const EngineState& s, Value value) {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  for (const RankState& r : s.ranks) out += fmt::format("{}{{rank=\"{}\"}} {}\n", name, r.rank, value(r));
}

void render_ranks(const EngineState& s, std::string& out) {
  line(out, "gauge", "lariat_epoch", "How often the group of ranks was formed.",
       static_cast<int64_t>(s.epoch));
  line(out, "gauge", "lariat_ranks", "Ranks of the group.", static_cast<int64_t>(s.ranks.size()));
  by_rank(out, "gauge", "lariat_rank_ready", "1 if the rank has loaded and is not lost.", s,
          [](const RankState& r) { return r.state == "ready" ? 1 : 0; });
  by_rank(out, "counter", "lariat_rank_restarts_total", "How often the rank was started again.", s,
          [](const RankState& r) { return r.restarts; });
  by_rank(out, "gauge", "lariat_rank_heartbeat_age_seconds", "Since the rank was last heard.", s,
          [](const RankState& r) { return static_cast<double>(r.heartbeat_age_ms) / 1e3; });
  by_rank(out, "gauge", "lariat_rank_resident_bytes", "The rank's resident memory, at its last heartbeat.", s,
          [](const RankState& r) { return r.rss_bytes; });
  by_rank(out, "gauge", "lariat_rank_comm_wait_seconds", "Waited for other ranks in the last step.", s,
          [](const RankState& r) { return static_cast<double>(r.comm_wait_us) / 1e6; });
  by_rank(out, "counter", "lariat_rank_comm_wait_seconds_total", "Waited for other ranks in all steps.", s,
          [](const RankState& r) { return static_cast<double>(r.comm_wait_total_us) / 1e6; });
}

}  // namespace

void SecondsHistogram::observe(double seconds, uint64_t times) {
  size_t bucket = 0;
  while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
  buckets_[bucket].fetch_add(times, std::memory_order_relaxed);
  const auto us = static_cast<uint64_t>(seconds > 0 ? seconds * 1e6 : 0);
  microseconds_.fetch_add(us * times, std::memory_order_relaxed);
}

void SecondsHistogram::render(std::string_view name, std::string_view help, std::string& out) const {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  uint64_t count = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    count += buckets_[i].load(std::memory_order_relaxed);
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, count);
  }
  const double sum = static_cast<double>(microseconds_.load(std::memory_order_relaxed)) / 1e6;
  out += fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, sum, count);
}

void HttpMetrics::count_request(std::string_view endpoint, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{std::string(endpoint), status}];
}

std::string HttpMetrics::render(const EngineState& s) const {
  std::string out;
  line(out, "gauge", "lariat_ready", "1 if requests are taken.", s.ready ? 1 : 0);
  line(out, "gauge", "lariat_requests_running", "Requests with a row.", s.requests_running);
  line(out, "gauge", "lariat_requests_waiting", "Requests in the queue.", s.requests_waiting);
  line(out, "gauge", "lariat_kv_pages_used", "KV pages in use.", s.kv_pages_used);
  line(out, "gauge", "lariat_kv_pages_total", "KV pages there are.", s.kv_pages_total);
  line(out, "counter", "lariat_prompt_tokens_total", "Prompt tokens taken.", s.prompt_tokens_total);
  line(out, "counter", "lariat_generation_tokens_total", "Tokens generated.", s.generation_tokens_total);
  line(out, "counter", "lariat_requests_total", "Requests taken.", s.requests_total);
  line(out, "counter", "lariat_requests_cancelled_total", "Requests cancelled.", s.requests_cancelled_total);
  line(out, "counter", "lariat_requests_failed_total", "Requests that ended in an error.",
       s.requests_failed_total);
  line(out, "counter", "lariat_steps_total", "Steps of the ranks.", s.steps_total);
  line(out, "counter", "lariat_worker_restarts_total", "Workers started again.", s.worker_restarts_total);
  render_ranks(s, out);
  line(out, "gauge", "lariat_http_connections", "Open connections.", connections.load());
  line(out, "gauge", "lariat_http_body_bytes", "Held of requests that are being read or parsed.",
       body_bytes.load());
  line(out, "counter", "lariat_http_disconnects_total", "Generations whose client went away.",
       static_cast<int64_t>(disconnects.load()));
  line(out, "counter", "lariat_http_slow_clients_total", "Streams ended because the client did not read.",
       static_cast<int64_t>(slow_clients.load()));
  time_to_first_token.render("lariat_time_to_first_token_seconds", "From a request to its first token.", out);
  inter_token.render("lariat_inter_token_seconds", "Between two tokens of a choice.", out);
  request_seconds.render("lariat_request_seconds", "From a request to the end of its answer.", out);
  out += "# HELP lariat_http_requests_total Requests by endpoint and status.\n";
  out += "# TYPE lariat_http_requests_total counter\n";
  const std::lock_guard lock(mutex_);
  for (const auto& [key, count] : requests_) {
    out += fmt::format("lariat_http_requests_total{{endpoint=\"{}\",status=\"{}\"}} {}\n", key.first,
                       key.second, count);
  }
  return out;
}

}  // namespace lariat
