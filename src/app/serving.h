// A served model: its text side, its engine and the ranks as processes of this program. Behind serve and run.
#pragma once

#include <functional>
#include <memory>

#include "api/model_context.h"
#include "app/model_session.h"
#include "app/options.h"
#include "app/private_dir.h"
#include "app/text_codec.h"
#include "head/engine_impl.h"
#include "tokenizer/tokenizer.h"

namespace lariat {

struct Served {
  ModelFiles files;
  std::unique_ptr<const Tokenizer> tokenizer;  // null: token ids only
  std::unique_ptr<ModelCodec> codec;           // null without a tokenizer
  ModelContext context;
  Capacity capacity;
  PrivateDir group_dir;                // for the ranks' sockets, and where several of them meet
  std::unique_ptr<EngineImpl> engine;  // started; last, so that it ends first
};

// Checks everything that can be checked without loading, then starts the ranks. wait_ready() is the caller's.
// Errors: the model's, the tokenizer's, every refusal of the plan.
Result<std::unique_ptr<Served>> start_served(const ModelOptions& model_options, const LayoutOptions& options,
                                             const ServeOptions& serve);

// Waits for the engine, with a progress line on a terminal. The cause if the ranks cannot be formed;
// kCancelled once `stop` says true.
Status wait_until_ready(EngineImpl& engine, const std::function<bool()>& stop = {});

}  // namespace lariat
