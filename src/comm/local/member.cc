#include "comm/local/member.h"

#include <cstring>

namespace lariat {
namespace {

std::byte* at(void* data, size_t offset) {
  return static_cast<std::byte*>(data) + offset;
}
const std::byte* at(const void* data, size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

Half send_to(int32_t peer, const void* from, size_t bytes) {
  return {.peer = peer, .send = true, .from = from, .bytes = bytes};
}
Half recv_from(int32_t peer, void* to, size_t bytes) {
  return {.peer = peer, .send = false, .to = to, .bytes = bytes};
}

void copy_own(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

class MemberGroup::Posted : public Pending {
 public:
  Posted(std::shared_ptr<Exchange> exchange, ExchangeOpPtr op, std::shared_ptr<Counts> counts,
         std::unique_ptr<Sum> sum, Status refused)
      : exchange_(std::move(exchange)),
        op_(std::move(op)),
        counts_(std::move(counts)),
        sum_(std::move(sum)),
        status_(std::move(refused)),
        over_(!status_.ok()) {}
  ~Posted() override {
    if (!over_) exchange_->retire(op_);
  }
  Posted(const Posted&) = delete;
  Posted& operator=(const Posted&) = delete;

  Status wait(Deadline deadline) override {
    if (over_) return status_;
    if (!exchange_->done(op_)) {
      const auto since = CommClock::now();
      status_ = exchange_->wait(op_, deadline);
      counts_->wait_us +=
          std::chrono::duration_cast<std::chrono::microseconds>(CommClock::now() - since).count();
    } else {
      status_ = exchange_->wait(op_, deadline);
    }
    over_ = true;
    if (status_.ok() && sum_) add_up();
    return status_;
  }

  bool done() const override { return over_ || exchange_->done(op_); }

 private:
  void add_up() {
    const int64_t n = sum_->n;
    const auto parts = static_cast<int64_t>(sum_->parts.size()) / std::max<int64_t>(n, 1);
    for (int64_t i = 0; i < n; ++i) sum_->out[i] = sum_->parts[static_cast<size_t>(i)];
    for (int64_t part = 1; part < parts; ++part) {
      const float* from = sum_->parts.data() + part * n;
      for (int64_t i = 0; i < n; ++i) sum_->out[i] += from[i];
    }
  }

  std::shared_ptr<Exchange> exchange_;
  ExchangeOpPtr op_;
  std::shared_ptr<Counts> counts_;
  std::unique_ptr<Sum> sum_;
  Status status_;
  bool over_;
};

MemberGroup::MemberGroup(std::shared_ptr<Exchange> exchange, int32_t group, int32_t member)
    : exchange_(std::move(exchange)),
      group_(group),
      member_(member),
      size_(static_cast<int32_t>(exchange_->members(group).size())) {
  LARIAT_CHECK(member >= 0 && member < size_, "member {} of {}", member, size_);
}

CommCounters MemberGroup::counters() const {
  return {counts_->calls.load(), counts_->bytes_sent.load(), counts_->wait_us.load()};
}

ExchangeOpPtr MemberGroup::begin(CommCall call) {
  auto op = std::make_shared<ExchangeOp>();
  op->call = call;
  op->number = number_++;
  op->group = group_;
  op->member = member_;
  return op;
}

PendingPtr MemberGroup::post(ExchangeOpPtr op, Device device, std::unique_ptr<Sum> sum) {
  ++counts_->calls;
  Status status = Ok{};
  if (device.kind != DeviceKind::kCpu) {
    const Error why =
        make_error(Errc::kUnsupported, fmt::format("the {} transport moves host memory only", transport()));
    exchange_->abort(group_, member_, why);
    status = why;
  } else {
    for (const Half& half : op->halves)
      if (half.send) counts_->bytes_sent += static_cast<int64_t>(half.bytes);
    status = exchange_->post(op);
  }
  return std::make_unique<Posted>(exchange_, std::move(op), counts_, std::move(sum), std::move(status));
}

PendingPtr MemberGroup::ring_shift(SendBytes send, RecvBytes recv) {
  ExchangeOpPtr op = begin(CommCall::kRingShift);
  if (size_ == 1) {
    LARIAT_CHECK(send.bytes == recv.bytes, "a ring of one shifts {} bytes into {}", send.bytes, recv.bytes);
    copy_own(recv.data, send.data, send.bytes);
  } else {
    op->halves = {recv_from((member_ + size_ - 1) % size_, recv.data, recv.bytes),
                  send_to((member_ + 1) % size_, send.data, send.bytes)};
  }
  return post(std::move(op), send.device.kind == DeviceKind::kCpu ? recv.device : send.device);
}

PendingPtr MemberGroup::all_gather(SendBytes send, RecvBytes recv) {
  LARIAT_CHECK(recv.bytes == send.bytes * static_cast<size_t>(size_), "{} members of {} bytes gathered in {}",
               size_, send.bytes, recv.bytes);
  ExchangeOpPtr op = begin(CommCall::kAllGather);
  copy_own(at(recv.data, send.bytes * static_cast<size_t>(member_)), send.data, send.bytes);
  for (int32_t j = 0; j < size_; ++j) {
    if (j == member_) continue;
    op->halves.push_back(recv_from(j, at(recv.data, send.bytes * static_cast<size_t>(j)), send.bytes));
    op->halves.push_back(send_to(j, send.data, send.bytes));
  }
  return post(std::move(op), send.device.kind == DeviceKind::kCpu ? recv.device : send.device);
}

PendingPtr MemberGroup::all_to_all(SendBytes send, RecvBytes recv) {
  LARIAT_CHECK(recv.bytes == send.bytes && send.bytes % static_cast<size_t>(size_) == 0,
               "{} bytes for {} members, room for {}", send.bytes, size_, recv.bytes);
  ExchangeOpPtr op = begin(CommCall::kAllToAll);
  const size_t block = send.bytes / static_cast<size_t>(size_);
  for (int32_t j = 0; j < size_; ++j) {
    const size_t offset = block * static_cast<size_t>(j);
    if (j == member_) {
      copy_own(at(recv.data, offset), at(send.data, offset), block);
      continue;
    }
    op->halves.push_back(recv_from(j, at(recv.data, offset), block));
    op->halves.push_back(send_to(j, at(send.data, offset), block));
  }
  return post(std::move(op), send.device.kind == DeviceKind::kCpu ? recv.device : send.device);
}

PendingPtr MemberGroup::all_reduce_sum(float* data, int64_t n, Device device) {
  LARIAT_CHECK(n >= 0, "a sum of {} numbers", n);
  ExchangeOpPtr op = begin(CommCall::kAllReduce);
  if (size_ == 1) return post(std::move(op), device);
  auto sum = std::make_unique<Sum>();
  const auto count = static_cast<size_t>(n);
  sum->n = n;
  sum->out = data;
  sum->parts.resize(count * static_cast<size_t>(size_));
  float* own = sum->parts.data() + count * static_cast<size_t>(member_);
  copy_own(own, data, count * sizeof(float));
  for (int32_t j = 0; j < size_; ++j) {
    if (j == member_) continue;
    op->halves.push_back(
        recv_from(j, sum->parts.data() + count * static_cast<size_t>(j), count * sizeof(float)));
    op->halves.push_back(send_to(j, own, count * sizeof(float)));
  }
  return post(std::move(op), device, std::move(sum));
}

PendingPtr MemberGroup::reduce_scatter_sum(const float* data, int64_t n, float* out, Device device) {
  LARIAT_CHECK(n >= 0 && n % size_ == 0, "{} numbers over {} members", n, size_);
  ExchangeOpPtr op = begin(CommCall::kReduceScatter);
  auto sum = std::make_unique<Sum>();
  const auto block = static_cast<size_t>(n / size_);
  sum->n = n / size_;
  sum->out = out;
  sum->parts.resize(static_cast<size_t>(n));
  for (int32_t j = 0; j < size_; ++j) {
    float* part = sum->parts.data() + block * static_cast<size_t>(j);
    if (j == member_) {
      copy_own(part, data + block * static_cast<size_t>(j), block * sizeof(float));
      continue;
    }
    op->halves.push_back(recv_from(j, part, block * sizeof(float)));
    op->halves.push_back(send_to(j, data + block * static_cast<size_t>(j), block * sizeof(float)));
  }
  return post(std::move(op), device, std::move(sum));
}

PendingPtr MemberGroup::broadcast(void* data, size_t bytes, int32_t root, Device device) {
  LARIAT_CHECK(root >= 0 && root < size_, "root {} of {}", root, size_);
  ExchangeOpPtr op = begin(CommCall::kBroadcast);
  if (member_ != root) {
    op->halves.push_back(recv_from(root, data, bytes));
  } else {
    for (int32_t j = 0; j < size_; ++j)
      if (j != root) op->halves.push_back(send_to(j, data, bytes));
  }
  return post(std::move(op), device);
}

PendingPtr MemberGroup::barrier() {
  ExchangeOpPtr op = begin(CommCall::kBarrier);
  for (int32_t j = 0; j < size_; ++j) {
    if (j == member_) continue;
    op->halves.push_back(recv_from(j, nullptr, 0));
    op->halves.push_back(send_to(j, nullptr, 0));
  }
  return post(std::move(op), Device{});
}

}  // namespace lariat
