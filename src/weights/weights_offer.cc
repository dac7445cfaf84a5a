#include "weights/weights_offer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace lariat {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kMagic = 0x4C525757;  // changes with the protocol
constexpr auto kAnswerTime = 1s;
constexpr size_t kTableBytesMax = size_t{64} << 20;

struct Ask {
  uint32_t magic = kMagic;
  uint32_t key_bytes = 0;  // the key follows
};
struct Answer {
  uint32_t magic = kMagic;
  uint32_t given = 0;        // 0: other weights
  uint64_t table_bytes = 0;  // the table follows; the descriptors come with this message
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

std::string WeightsOffer::stem(const std::string& key) {
  return fmt::format("weights-{:016x}", XXH3_64bits(key.data(), key.size()));
}

Result<std::unique_ptr<WeightsOffer>> WeightsOffer::create(const std::filesystem::path& dir,
                                                           const std::string& key, const PackedStore& store) {
  std::unique_ptr<WeightsOffer> offer(new WeightsOffer);
  offer->key_ = key;
  offer->table_ = store.table();
  const std::vector<int> fds = store.fds();
  if (key.size() > kKeyBytesMax || fds.size() > kPassedFdsMax || offer->table_.size() > kTableBytesMax) {
    return make_error(Errc::kUnsupported,
                      fmt::format("{} buffers, a key of {} bytes and a table of {} are not offered",
                                  fds.size(), key.size(), offer->table_.size()));
  }
  for (const int fd : fds) {
    offer->fds_.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (offer->fds_.back().get() < 0) return make_error(Errc::kResourceExhausted, "no descriptors left");
  }
  offer->stop_ = OwnedFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (offer->stop_.get() < 0) return make_error(Errc::kResourceExhausted, "no descriptors left");
  const std::string name = fmt::format("{}-{}.sock", stem(key), ::getpid());
  LARIAT_ASSIGN(offer->listener_, listen_at(dir, name));
  offer->socket_ = dir / name;
  offer->thread_ = std::thread([o = offer.get()] { o->serve(); });
  return offer;
}

WeightsOffer::~WeightsOffer() {
  if (!thread_.joinable()) return;
  ::unlink(socket_.c_str());
  const uint64_t one = 1;
  LARIAT_CHECK(::write(stop_.get(), &one, sizeof one) == sizeof one, "an eventfd takes one");
  thread_.join();
}

void WeightsOffer::serve() {
  pollfd watched[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (true) {
    const int n = ::poll(watched, 2, -1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || watched[1].revents != 0) return;
    const auto caller = accept_from(listener_.get());
    if (!caller.ok()) continue;
    if (const Status status = answer(caller->get()); !status.ok())
      log_debug("weights asked for and not taken: {}", status.error().message);
  }
}

Status WeightsOffer::answer(int caller) const {
  const FdDeadline deadline = std::chrono::steady_clock::now() + kAnswerTime;
  Ask ask;
  LARIAT_RETURN_IF_ERROR(recv_bytes(caller, std::as_writable_bytes(std::span(&ask, 1)), deadline));
  if (ask.magic != kMagic || ask.key_bytes > kKeyBytesMax)
    return make_error(Errc::kCorruptData, "no such question");
  std::string key(ask.key_bytes, '\0');
  LARIAT_RETURN_IF_ERROR(recv_bytes(caller, std::as_writable_bytes(std::span(key)), deadline));
  if (key != key_) return send_bytes(caller, bytes_of(Answer{}), deadline);
  std::vector<int> fds;
  for (const OwnedFd& fd : fds_) fds.push_back(fd.get());
  const Answer given{.given = 1, .table_bytes = table_.size()};
  LARIAT_RETURN_IF_ERROR(send_with_fds(caller, bytes_of(given), fds, deadline));
  return send_bytes(caller, bytes_of(table_), deadline);
}

namespace {

Result<PackedStore> take_from(const std::filesystem::path& dir, const std::string& name,
                              const std::string& key, FdDeadline deadline) {
  LARIAT_ASSIGN(const OwnedFd socket, connect_to(dir, name));
  const Ask ask{.key_bytes = static_cast<uint32_t>(key.size())};
  LARIAT_RETURN_IF_ERROR(send_bytes(socket.get(), bytes_of(ask), deadline));
  LARIAT_RETURN_IF_ERROR(send_bytes(socket.get(), bytes_of(key), deadline));
  Answer answer;
  LARIAT_ASSIGN(const std::vector<OwnedFd> owned,
                recv_with_fds(socket.get(), std::as_writable_bytes(std::span(&answer, 1)), deadline));
  if (answer.magic != kMagic || answer.table_bytes > kTableBytesMax)
    return make_error(Errc::kCorruptData, name + " gave no answer of ours");
  if (answer.given == 0) return make_error(Errc::kUnavailable, name + " has other weights");
  std::string table(answer.table_bytes, '\0');
  LARIAT_RETURN_IF_ERROR(recv_bytes(socket.get(), std::as_writable_bytes(std::span(table)), deadline));
  std::vector<int> fds;
  for (const OwnedFd& fd : owned) fds.push_back(fd.get());
  return PackedStore::open(fds, table);
}

}  // namespace

Result<PackedStore> take_offered_weights(const std::filesystem::path& dir, const std::string& key,
                                         FdDeadline deadline) {
  const std::string stem = WeightsOffer::stem(key) + "-";
  std::vector<std::string> names;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(dir, ignored), end; it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(stem) && name.ends_with(".sock")) names.push_back(name);
  }
  for (const std::string& name : names) {
    const FdDeadline until = std::min(deadline, std::chrono::steady_clock::now() + kAnswerTime);
    auto store = take_from(dir, name, key, until);
    if (store.ok()) return store;
    if (store.error().code == Errc::kNotFound) {
      ::unlink((dir / name).c_str());  // its process is gone
    } else {
      log_warn("offered weights passed over: {}", store.error().message);
    }
  }
  return make_error(Errc::kNotFound, "nobody offers these weights");
}

}  // namespace lariat
