// One rank's view of a group whose members are threads: collectives as sends and receives of an Exchange.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "comm/local/exchange.h"

namespace lariat {

class MemberGroup : public Group {
 public:
  MemberGroup(std::shared_ptr<Exchange> exchange, int32_t group, int32_t member);

  int32_t rank() const override { return member_; }
  int32_t size() const override { return size_; }
  std::string_view transport() const override { return exchange_->transport(); }
  CommCounters counters() const override;

  PendingPtr ring_shift(SendBytes send, RecvBytes recv) override;
  PendingPtr all_gather(SendBytes send, RecvBytes recv) override;
  PendingPtr all_to_all(SendBytes send, RecvBytes recv) override;
  PendingPtr all_reduce_sum(float* data, int64_t n, Device device) override;
  PendingPtr reduce_scatter_sum(const float* data, int64_t n, float* out, Device device) override;
  PendingPtr broadcast(void* data, size_t bytes, int32_t root, Device device) override;
  PendingPtr barrier() override;
  Status health() override { return exchange_->health(group_, member_); }
  void abort(Error why) override { exchange_->abort(group_, member_, std::move(why)); }

 private:
  class Posted;
  struct Counts {
    std::atomic<int64_t> calls{0}, bytes_sent{0}, wait_us{0};
  };
  // What is left to do on the caller's thread once all has arrived: out = the sum of `parts`, [size][n] f32,
  // which hold this member's part too: peers may read it after `out`, which may be the same numbers, is
  // written.
  struct Sum {
    std::vector<float> parts;
    float* out = nullptr;
    int64_t n = 0;
  };

  ExchangeOpPtr begin(CommCall call);
  PendingPtr post(ExchangeOpPtr op, Device device, std::unique_ptr<Sum> sum = nullptr);

  std::shared_ptr<Exchange> exchange_;
  int32_t group_;
  int32_t member_;
  int32_t size_;
  uint64_t number_ = 0;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace lariat
