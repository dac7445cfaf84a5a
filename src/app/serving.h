// A served model: its text side, its engine and the ranks as processes of this program. Behind serve and run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "api/model_context.h"
#include "app/model_session.h"
#include "app/options.h"
#include "app/text_codec.h"
#include "head/engine_impl.h"
#include "tokenizer/tokenizer.h"

namespace lariat {

// A folder of mode 0700 that is removed with its owner.
class PrivateDir {
 public:
  static Result<PrivateDir> create();
  PrivateDir() = default;
  ~PrivateDir();
  PrivateDir(PrivateDir&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PrivateDir& operator=(PrivateDir&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Served {
  ModelFiles files;
  std::unique_ptr<const Tokenizer> tokenizer;  // null: token ids only
  std::unique_ptr<ModelCodec> codec;           // null without a tokenizer
  ModelContext context;
  Capacity capacity;
  PrivateDir group_dir;                // where several ranks meet
  std::unique_ptr<EngineImpl> engine;  // started; last, so that it ends first
};

// Checks everything that can be checked without loading, then starts the ranks. wait_ready() is the caller's.
// Errors: the model's, the tokenizer's, every refusal of the plan.
Result<std::unique_ptr<Served>> start_served(const ModelOptions& model_options, const LayoutOptions& options,
                                             const ServeOptions& serve);

// Waits for the engine, with a progress line on a terminal. The cause if the ranks cannot be formed;
// kCancelled once `stop` says true.
Status wait_until_ready(EngineImpl& engine, const std::function<bool()>& stop = {});

// Ids of head and ranks of one build; a rank of another is refused.
std::string build_id();

}  // namespace lariat
