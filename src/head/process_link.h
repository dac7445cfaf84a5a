// Ranks as child processes of the head, each behind a unix socket in a folder that only this user can enter.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "head/rank_link.h"

namespace lariat {

// A socket's path has at most 107 bytes; the folder and its name come below the root.
inline constexpr size_t kSocketRootBytesMax = 60;

struct ProcessRankOptions {
  std::string path = "/proc/self/exe";  // this program, also after its file was replaced
  // The rank's command line, args[0] included. It must listen at `address` ("unix:/...").
  std::function<std::vector<std::string>(int32_t rank, Epoch epoch, const std::string& address)> args;
  std::string socket_root = "/tmp";  // where a rank's folder is made
  std::chrono::milliseconds connect_timeout{30'000};
};

// kInvalidArgument if socket_root is too long for a socket's path. Each rank's folder is gone as soon as the
// rank is connected.
Result<RankLinkFactory> make_process_ranks(ProcessRankOptions options);

}  // namespace lariat
