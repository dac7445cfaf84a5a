// A rank's connections to all others under one epoch, and their common death.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/gloo/gloo_groups.h"
#include "comm/gloo/lookout.h"
#include "comm/gloo/mailbox.h"
#include "comm/gloo/transfer.h"
#include "comm/gloo/wait_board.h"

namespace gloo::transport {
class Device;
}

namespace lariat {

class Meeting;

// Messages of up to Mailbox::kMessageMax bytes go through shared memory, larger ones through Gloo's
// connections, which also tell of a peer's death.
//
// A mesh lives until its first failure. Whoever sees one (a closed connection, a deadline, an abort) tells
// every peer in an obituary, for which each rank has a receive posted from the start, on a connection of its
// own; a peer killed outright shows as that receive's failure. The lookout watches those.
//
// post, wait are for one thread; health, abort are for any.
class Mesh {
 public:
  using What = std::function<std::string()>;

  static Result<std::shared_ptr<Mesh>> connect(const GlooOptions& options);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int32_t rank() const { return rank_; }

  // Receives stand before sends. Never blocks on a peer. The vector stays where it is until wait() has
  // returned, or forget(): every wait moves on whatever was posted before.
  Status post(std::vector<Transfer>& transfers);
  void forget(const std::vector<Transfer>& transfers);
  // Until all are done. After an error nobody touches their memory once they are destroyed. `what` describes
  // the call in the error of a deadline.
  Status wait(std::vector<Transfer>& transfers, Deadline deadline, const What& what);
  // Dies of what the lookout has seen, if anything.
  Status health();
  void abort(const Error& why) { die(why); }
  bool dead() const { return dead_flag_.load(); }

 private:
  Mesh(int32_t world, int32_t rank);
  Status open_connections(const GlooOptions& options, Meeting& meeting, Deadline deadline);
  Status connect_pairs(const GlooOptions& options, const Meeting& meeting, Deadline deadline);
  Status agree(const GlooOptions& options, Deadline deadline);
  // Small messages, either way: moves what can be moved.
  Result<bool> move_mail(Transfer& transfer);
  struct Mail {
    Transfer* open = nullptr;  // the first that is not done
    bool moved = false;        // something was
  };
  Status send_all_mail();
  Result<Mail> move_all_mail(std::span<Transfer> transfers);
  Status post_large(std::span<Transfer> transfers);
  Status wait_for_large(std::span<Transfer> transfers, Deadline deadline, const What& what);
  Status wait_for_mail(std::span<Transfer> transfers, Deadline deadline, const What& what);
  Status give_up(const Transfer& transfer, const std::string& what);  // at its deadline
  Error timed_out(const Transfer& transfer, const std::string& what) const;
  void die(const Error& why);
  // With the death lock held. When it returns, the peers have been told and, unless orderly, every connection
  // is closed.
  void bury(const Error& why, bool orderly);
  Error death();

  const int32_t world_;
  const int32_t rank_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;  // data
  // Connections for obituaries alone: behind data that a peer is slow to take they would come too late.
  std::shared_ptr<gloo::transport::Context> news_context_;
  WaitBoard board_;
  Mailbox mail_;
  std::vector<std::vector<Transfer>*> posted_;  // in this order
  std::vector<bool> blocked_;                   // peers, of one look at the mail
  const bool spins_;                  // a wait for mail, before it sleeps: not where ranks share cores
  std::unique_ptr<Lookout> lookout_;  // null with one rank

  std::mutex death_mutex_;  // held from the first sign of death to the last connection closed
  std::optional<Error> dead_;
  std::atomic<bool> dead_flag_{false};
  std::mutex post_mutex_;  // connections are not closed under a post
};

}  // namespace lariat
