#include "weights/shared_weights.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"

namespace lariat {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);

// The right to pack, or the weights that somebody offered meanwhile.
struct Turn {
  OwnedFd lock;
  std::optional<PackedStore> found;
};

Status check_private(const std::filesystem::path& dir) {
  struct stat st{};
  if (::stat(dir.c_str(), &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != ::geteuid() ||
      (st.st_mode & 077) != 0)
    return make_error(Errc::kInvalidArgument, dir.string() + " is no directory of mode 0700");
  return Ok{};
}

Result<Turn> await_turn(const SharedWeightsOptions& options) {
  LARIAT_RETURN_IF_ERROR(check_private(options.dir));
  const FdDeadline deadline = std::chrono::steady_clock::now() + options.timeout;
  const std::filesystem::path path = options.dir / (WeightsOffer::stem(options.key) + ".lock");
  Turn turn;
  turn.lock = OwnedFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (turn.lock.get() < 0)
    return make_error(Errc::kUnavailable,
                      fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  while (true) {
    // Asked for after the lock is taken too: who had it before may have packed.
    const bool locked = ::flock(turn.lock.get(), LOCK_EX | LOCK_NB) == 0;
    auto offered = take_offered_weights(options.dir, options.key, deadline);
    if (offered.ok()) turn.found = std::move(offered).value();
    if (locked || turn.found) return turn;
    if (std::chrono::steady_clock::now() >= deadline)
      return make_error(Errc::kDeadlineExceeded, "another rank has been packing them for too long");
    std::this_thread::sleep_for(kPoll);
  }
}

Result<SharedWeights> pack(const SharedWeightsOptions& options, const SharedWeights::Build& build) {
  SharedWeights weights;
  weights.store = PackedStore({.shared = true, .capacity_hint = options.capacity_hint});
  LARIAT_RETURN_IF_ERROR(build(weights.store));
  weights.store.seal();
  weights.built = true;
  return weights;
}

}  // namespace

Result<SharedWeights> SharedWeights::obtain(const SharedWeightsOptions& options, const Build& build) {
  if (options.dir.empty()) return pack(options, build);
  auto turn = await_turn(options);  // the lock is held until the offer stands
  if (!turn.ok()) log_warn("weights are not shared, this rank packs its own: {}", turn.error().message);
  SharedWeights weights;
  if (turn.ok() && turn->found) {
    weights.store = std::move(*turn->found);
  } else {
    LARIAT_ASSIGN(weights, pack(options, build));
  }
  auto offer = WeightsOffer::create(options.dir, options.key, weights.store);
  if (offer.ok()) {
    weights.offer = std::move(offer).value();
  } else {
    log_warn("later ranks cannot share these weights: {}", offer.error().message);
  }
  return weights;
}

}  // namespace lariat
