// One role's group of a rank over the mesh: collectives as direct messages between every two members.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "comm/gloo/mesh.h"
#include "comm/group.h"

namespace lariat {

class GlooGroup : public Group {
 public:
  enum class Role : uint8_t { kWorld, kTp, kRing, kDuplicates };

  // `members` are world ranks in member order, the mesh's own among them.
  GlooGroup(std::shared_ptr<Mesh> mesh, Role role, std::vector<int32_t> members);

  int32_t rank() const override { return member_; }
  int32_t size() const override { return static_cast<int32_t>(members_.size()); }
  std::string_view transport() const override { return "gloo"; }
  CommCounters counters() const override;

  PendingPtr ring_shift(SendBytes out, RecvBytes in) override;
  PendingPtr all_gather(SendBytes out, RecvBytes in) override;
  PendingPtr all_to_all(SendBytes out, RecvBytes in) override;
  PendingPtr all_reduce_sum(float* data, int64_t n, Device device) override;
  PendingPtr reduce_scatter_sum(const float* data, int64_t n, float* out, Device device) override;
  PendingPtr broadcast(void* data, size_t bytes, int32_t root, Device device) override;
  PendingPtr barrier() override;
  Status health() override { return mesh_->health(); }
  void abort(Error why) override;

 private:
  class Posted;
  struct Call;  // one collective on its way to be posted
  struct Counts {
    std::atomic<int64_t> calls{0}, bytes_sent{0}, wait_us{0};
  };

  Call begin(const char* name, uint32_t kind, Device device);
  void receive(Call& call, int32_t member, void* to, size_t bytes) const;
  void send(Call& call, int32_t member, const void* from, size_t bytes) const;
  void exchange(Call& call, int32_t member, const float* from, float* to, size_t bytes) const;
  PendingPtr post(Call call);

  std::shared_ptr<Mesh> mesh_;
  Role role_;
  std::vector<int32_t> members_;
  int32_t member_ = 0;
  uint64_t number_ = 0;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace lariat
