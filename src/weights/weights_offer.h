// A process that has packed weights hands them to later ranks of its machine.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "weights/fd_passing.h"
#include "weights/packed_store.h"

namespace lariat {

// Serves a sealed shared store's descriptors and table at dir/<stem of key>-<pid>.sock from a thread of its
// own, for as long as it lives; the store itself may be moved or go.
class WeightsOffer {
 public:
  static Result<std::unique_ptr<WeightsOffer>> create(const std::filesystem::path& dir,
                                                      const std::string& key, const PackedStore& store);
  ~WeightsOffer();
  WeightsOffer(const WeightsOffer&) = delete;
  WeightsOffer& operator=(const WeightsOffer&) = delete;

  // "weights-" and 16 hex digits of the key: what an offer's files begin with.
  static std::string stem(const std::string& key);
  static constexpr size_t kKeyBytesMax = 4096;

 private:
  WeightsOffer() = default;
  void serve();
  Status answer(int caller) const;

  std::filesystem::path socket_;
  std::string key_;
  std::string table_;
  std::vector<OwnedFd> fds_;
  OwnedFd listener_;
  OwnedFd stop_;
  std::thread thread_;
};

// From whichever process under `dir` offers weights of exactly `key`: they map the same pages. kNotFound if
// there is none. An offer that does not answer within a second, garbles or has other weights is passed over;
// files of processes that are gone are removed.
Result<PackedStore> take_offered_weights(const std::filesystem::path& dir, const std::string& key,
                                         FdDeadline deadline);

}  // namespace lariat
