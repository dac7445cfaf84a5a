#include "worker/step_agreement.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "plan/schedule_hash.h"

namespace lariat {
namespace {

// One rank's word before a step, of a fixed size so that it can be gathered.
struct ReadyRecord {
  int32_t ok = 1;
  int32_t code = 0;
  uint64_t fingerprint[2] = {0, 0};
  char message[232] = {};
};
static_assert(sizeof(ReadyRecord) == kReadyBytes, "the schedule says what crosses");

template <typename T>
Result<std::vector<T>> gather(Group& group, std::span<const T> own, Deadline deadline) {
  std::vector<T> all(own.size() * static_cast<size_t>(group.size()));
  const PendingPtr pending =
      group.all_gather({own.data(), own.size_bytes(), {}}, {all.data(), all.size() * sizeof(T), {}});
  LARIAT_RETURN_IF_ERROR(pending->wait(deadline));
  return all;
}

}  // namespace

Status StepAgreement::ready(const Status& own, std::span<const uint64_t, 2> fingerprint) const {
  if (size() == 1) return own;
  ReadyRecord mine;
  std::copy(fingerprint.begin(), fingerprint.end(), mine.fingerprint);
  if (!own.ok()) {
    mine.ok = 0;
    mine.code = static_cast<int32_t>(own.error().code);
    const std::string& text = own.error().message;
    std::memcpy(mine.message, text.data(), std::min(text.size(), sizeof(mine.message) - 1));
  }
  LARIAT_ASSIGN(const auto all, gather<ReadyRecord>(*world_, {&mine, 1}, deadline()));
  for (size_t r = 0; r < all.size(); ++r) {
    if (!all[r].ok) {
      return make_error(static_cast<Errc>(all[r].code), fmt::format("rank {}: {}", r, all[r].message),
                        fmt::format("rank {}", r));
    }
    if (!std::equal(std::begin(all[r].fingerprint), std::end(all[r].fingerprint), all[0].fingerprint)) {
      return make_error(Errc::kInternal,
                        fmt::format("rank {} derived another schedule for this step than rank 0", r));
    }
  }
  return Ok{};
}

Status StepAgreement::share_tokens(std::span<int32_t> tokens) const {
  if (size() == 1 || tokens.empty()) return Ok{};
  LARIAT_ASSIGN(const auto all, gather<int32_t>(*world_, tokens, deadline()));
  for (size_t i = 0; i < tokens.size(); ++i) {
    for (int32_t r = 0; r < size(); ++r) {
      const int32_t drawn = all[static_cast<size_t>(r) * tokens.size() + i];
      if (drawn < 0) continue;
      if (tokens[i] >= 0 && tokens[i] != drawn) {
        return make_error(Errc::kInternal, fmt::format("rank {} drew token {} for row {}, another rank {}", r,
                                                       drawn, i, tokens[i]));
      }
      tokens[i] = drawn;
    }
  }
  return Ok{};
}

}  // namespace lariat
