// Counters and histograms of the HTTP layer, and the Prometheus text of them and of the engine's state.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "head/engine.h"

namespace lariat {

// Cumulative histogram of seconds over fixed bounds. Lock-free; any thread may observe.
class SecondsHistogram {
 public:
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                         0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0, 300.0};
  void observe(double seconds, uint64_t times = 1);
  // # TYPE line, buckets, _sum, _count.
  void render(std::string_view name, std::string_view help, std::string& out) const;

 private:
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> buckets_{};
  std::atomic<uint64_t> microseconds_{0};
};

class HttpMetrics {
 public:
  SecondsHistogram time_to_first_token;
  SecondsHistogram inter_token;
  SecondsHistogram request_seconds;
  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> body_bytes{0};  // of requests that are being read or parsed
  std::atomic<uint64_t> slow_clients{0};
  std::atomic<uint64_t> disconnects{0};

  void count_request(std::string_view endpoint, int status);
  std::string render(const EngineState& state) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;
};

}  // namespace lariat
