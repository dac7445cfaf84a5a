#include "comm/gloo/member.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "comm/gloo/obituary.h"

namespace lariat {
namespace {

enum CallKind : uint32_t {
  kRingShift = 1,
  kAllGather,
  kAllToAll,
  kAllReduce,
  kReduceScatter,
  kBroadcast,
  kBarrier
};

// What both sides of a message call it: the role, the call's number and, of a sum, which piece of it. Kind
// and size are mixed in because Gloo ends the process when sizes disagree: here they do not match, and the
// wait ends by its deadline.
uint64_t slot_of(GlooGroup::Role role, uint64_t number, uint32_t kind, size_t bytes, size_t piece) {
  const uint64_t mixed = (((piece << 40) + bytes) * 8 + kind) * 0x9E3779B97F4A7C15u;
  return static_cast<uint64_t>(role) << 60 | (number & 0xFFFFFFF) << 32 | mixed >> 32;
}

std::byte* at(void* data, size_t offset) {
  return static_cast<std::byte*>(data) + offset;
}
const std::byte* at(const void* data, size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

void copy_own(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

Device device_of(const SendBytes& send, const RecvBytes& recv) {
  return send.device.kind == DeviceKind::kCpu ? recv.device : send.device;
}

const char* role_name(GlooGroup::Role role) {
  constexpr const char* kNames[] = {"world", "tp", "ring", "duplicates"};
  return kNames[static_cast<size_t>(role)];
}

}  // namespace

struct GlooGroup::Call {
  const char* name = "";
  uint32_t kind = 0;
  Device device;
  uint64_t number = 0;
  std::vector<Transfer> receives;
  std::vector<Transfer> sends;

  // What is left to do once all has arrived: out [n] = the sum of `parts` [size][n], in member order. The
  // parts hold this member's numbers too: peers may still read them when `out`, which may be the same
  // numbers, is written.
  std::unique_ptr<float[]> parts;
  size_t n = 0;
  float* out = nullptr;
};

class GlooGroup::Posted : public Pending {
 public:
  Posted(const GlooGroup& group, Call call)
      : mesh_(group.mesh_),
        counts_(group.counts_),
        role_(group.role_),
        members_(group.members_.size()),
        call_(std::move(call)) {
    // Receives before sends: a send that finds its receive posted goes out in one message.
    transfers_ = std::move(call_.receives);
    for (Transfer& t : call_.sends) transfers_.push_back(std::move(t));
    status_ = mesh_->post(transfers_);
    if (!status_.ok()) end();
  }
  ~Posted() override {
    LARIAT_CHECK(over_ || transfers_.empty() || mesh_->dead(), "{} was dropped unfinished by rank {}",
                 call_.name, mesh_->rank());
    end();
  }
  Posted(const Posted&) = delete;
  Posted& operator=(const Posted&) = delete;

  Status wait(Deadline deadline) override {
    if (over_) return status_;
    if (!transfers_.empty()) {
      const auto since = CommClock::now();
      status_ = mesh_->wait(transfers_, deadline, [this] {
        return fmt::format("{} (call {} of its {} group)", call_.name, call_.number, role_name(role_));
      });
      counts_->wait_us +=
          std::chrono::duration_cast<std::chrono::microseconds>(CommClock::now() - since).count();
    }
    end();
    if (status_.ok() && call_.out) add_up();
    call_.parts.reset();
    return status_;
  }

  // Gloo cannot be asked without waiting: what is on its way counts as unfinished until wait() is called.
  bool done() const override { return over_ || transfers_.empty() || mesh_->dead(); }

 private:
  // From here on the memory is the caller's again.
  void end() {
    over_ = true;
    mesh_->forget(transfers_);
    transfers_.clear();
  }

  void add_up() {
    const size_t n = call_.n;
    copy_own(call_.out, call_.parts.get(), n * sizeof(float));
    for (size_t part = 1; part < members_; ++part) {
      const float* from = call_.parts.get() + part * n;
      for (size_t i = 0; i < n; ++i) call_.out[i] += from[i];
    }
  }

  std::shared_ptr<Mesh> mesh_;
  std::shared_ptr<Counts> counts_;
  Role role_;
  size_t members_;
  Call call_;
  std::vector<Transfer> transfers_;  // receives first
  Status status_ = Ok{};
  bool over_ = false;
};

GlooGroup::GlooGroup(std::shared_ptr<Mesh> mesh, Role role, std::vector<int32_t> members)
    : mesh_(std::move(mesh)), role_(role), members_(std::move(members)) {
  const auto place = std::find(members_.begin(), members_.end(), mesh_->rank());
  LARIAT_CHECK(place != members_.end(), "rank {} is no member of its {} group", mesh_->rank(),
               role_name(role_));
  member_ = static_cast<int32_t>(place - members_.begin());
}

CommCounters GlooGroup::counters() const {
  return {counts_->calls.load(), counts_->bytes_sent.load(), counts_->wait_us.load()};
}

GlooGroup::Call GlooGroup::begin(const char* name, uint32_t kind, Device device) {
  Call call;
  call.name = name;
  call.kind = kind;
  call.device = device;
  call.number = number_++;
  return call;
}

void GlooGroup::receive(Call& call, int32_t member, void* to, size_t bytes) const {
  call.receives.emplace_back(members_[static_cast<size_t>(member)], false, to, bytes,
                             slot_of(role_, call.number, call.kind, bytes, 0));
}

void GlooGroup::send(Call& call, int32_t member, const void* from, size_t bytes) const {
  call.sends.emplace_back(members_[static_cast<size_t>(member)], true, from, bytes,
                          slot_of(role_, call.number, call.kind, bytes, 0));
}

// A sum is waited for at once, so nothing is gained by a thread that moves it meanwhile: in pieces that fit
// the mailbox it goes through shared memory at any size.
void GlooGroup::exchange(Call& call, int32_t member, const float* from, float* to, size_t bytes) const {
  const int32_t peer = members_[static_cast<size_t>(member)];
  for (size_t done = 0, piece = 0; done < bytes; ++piece) {
    const size_t n = std::min(bytes - done, Mailbox::kMessageMax);
    const uint64_t slot = slot_of(role_, call.number, call.kind, n, piece);
    call.receives.emplace_back(peer, false, at(static_cast<void*>(to), done), n, slot);
    call.sends.emplace_back(peer, true, at(static_cast<const void*>(from), done), n, slot);
    done += n;
  }
}

PendingPtr GlooGroup::post(Call call) {
  ++counts_->calls;
  if (call.device.kind != DeviceKind::kCpu) {
    abort(make_error(Errc::kUnsupported, "the gloo transport moves host memory only"));
  }
  for (const Transfer& t : call.sends) counts_->bytes_sent += static_cast<int64_t>(t.bytes());
  return std::make_unique<Posted>(*this, std::move(call));
}

PendingPtr GlooGroup::ring_shift(SendBytes out, RecvBytes in) {
  Call call = begin("ring_shift", kRingShift, device_of(out, in));
  if (size() == 1) {
    LARIAT_CHECK(out.bytes == in.bytes, "a ring of one shifts {} bytes into {}", out.bytes, in.bytes);
    copy_own(in.data, out.data, out.bytes);
  } else {
    receive(call, (member_ + size() - 1) % size(), in.data, in.bytes);
    send(call, (member_ + 1) % size(), out.data, out.bytes);
  }
  return post(std::move(call));
}

PendingPtr GlooGroup::all_gather(SendBytes out, RecvBytes in) {
  LARIAT_CHECK(in.bytes == out.bytes * members_.size(), "{} members of {} bytes gathered in {}", size(),
               out.bytes, in.bytes);
  Call call = begin("all_gather", kAllGather, device_of(out, in));
  copy_own(at(in.data, out.bytes * static_cast<size_t>(member_)), out.data, out.bytes);
  for (int32_t j = 0; j < size(); ++j) {
    if (j == member_) continue;
    receive(call, j, at(in.data, out.bytes * static_cast<size_t>(j)), out.bytes);
    send(call, j, out.data, out.bytes);
  }
  return post(std::move(call));
}

PendingPtr GlooGroup::all_to_all(SendBytes out, RecvBytes in) {
  LARIAT_CHECK(in.bytes == out.bytes && out.bytes % members_.size() == 0,
               "{} bytes for {} members, room for {}", out.bytes, size(), in.bytes);
  Call call = begin("all_to_all", kAllToAll, device_of(out, in));
  const size_t block = out.bytes / members_.size();
  for (int32_t j = 0; j < size(); ++j) {
    const size_t offset = block * static_cast<size_t>(j);
    if (j == member_) {
      copy_own(at(in.data, offset), at(out.data, offset), block);
      continue;
    }
    receive(call, j, at(in.data, offset), block);
    send(call, j, at(out.data, offset), block);
  }
  return post(std::move(call));
}

PendingPtr GlooGroup::all_reduce_sum(float* data, int64_t n, Device device) {
  LARIAT_CHECK(n >= 0, "a sum of {} numbers", n);
  Call call = begin("all_reduce_sum", kAllReduce, device);
  if (size() == 1) return post(std::move(call));
  const auto count = static_cast<size_t>(n);
  call.n = count;
  call.out = data;
  call.parts = std::make_unique_for_overwrite<float[]>(count * members_.size());
  float* own = call.parts.get() + count * static_cast<size_t>(member_);
  copy_own(own, data, count * sizeof(float));
  for (int32_t j = 0; j < size(); ++j) {
    if (j == member_) continue;
    exchange(call, j, own, call.parts.get() + count * static_cast<size_t>(j), count * sizeof(float));
  }
  return post(std::move(call));
}

PendingPtr GlooGroup::reduce_scatter_sum(const float* data, int64_t n, float* out, Device device) {
  LARIAT_CHECK(n >= 0 && n % size() == 0, "{} numbers over {} members", n, size());
  Call call = begin("reduce_scatter_sum", kReduceScatter, device);
  const size_t block = static_cast<size_t>(n) / members_.size();
  call.n = block;
  call.out = out;
  call.parts = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n));
  for (int32_t j = 0; j < size(); ++j) {
    float* part = call.parts.get() + block * static_cast<size_t>(j);
    const float* mine = data + block * static_cast<size_t>(j);
    if (j == member_) {
      copy_own(part, mine, block * sizeof(float));
      continue;
    }
    exchange(call, j, mine, part, block * sizeof(float));
  }
  return post(std::move(call));
}

PendingPtr GlooGroup::broadcast(void* data, size_t bytes, int32_t root, Device device) {
  LARIAT_CHECK(root >= 0 && root < size(), "root {} of {}", root, size());
  Call call = begin("broadcast", kBroadcast, device);
  if (member_ != root) {
    receive(call, root, data, bytes);
  } else {
    for (int32_t j = 0; j < size(); ++j)
      if (j != root) send(call, j, data, bytes);
  }
  return post(std::move(call));
}

PendingPtr GlooGroup::barrier() {
  Call call = begin("barrier", kBarrier, Device{});
  for (int32_t j = 0; j < size(); ++j) {
    if (j == member_) continue;
    receive(call, j, nullptr, 0);
    send(call, j, nullptr, 0);
  }
  return post(std::move(call));
}

void GlooGroup::abort(Error why) {
  if (why.param.empty()) {
    why = why.in(rank_name(mesh_->rank()));
    why.param = rank_name(mesh_->rank());
  }
  mesh_->abort(why);
}

}  // namespace lariat
