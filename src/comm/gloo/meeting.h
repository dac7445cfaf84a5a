// The folder where ranks that form a mesh leave their addresses for each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/group.h"

namespace lariat {

// One rank's view of one attempt. Files are written whole and never replaced: an attempt that reuses a prefix
// is refused.
class Meeting {
 public:
  // kInvalidArgument unless `dir` is a directory of ours that nobody else can enter and `prefix` is plain.
  static Result<Meeting> create(std::filesystem::path dir, std::string prefix, int32_t rank);
  ~Meeting();
  Meeting(Meeting&& other) noexcept;
  Meeting& operator=(Meeting&&) = delete;

  // addresses[p]: where rank p reaches this rank; empty at p == rank.
  Status publish(const std::vector<std::vector<char>>& addresses);
  // Where `peer` listens for this rank. Polls; kDeadlineExceeded or kCancelled name the peer.
  Result<std::vector<char>> find(int32_t peer, Deadline deadline, const std::atomic<bool>* cancelled) const;

  // A file of the attempt with `name`.
  std::filesystem::path path(const std::string& name) const;

 private:
  Meeting(std::filesystem::path dir, std::string prefix, int32_t rank);

  std::filesystem::path dir_;
  std::string prefix_;
  int32_t rank_;
  bool published_ = false;
};

}  // namespace lariat
