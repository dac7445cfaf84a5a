#include "app/serving.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "app/progress.h"
#include "app/rank_launch.h"
#include "app/tokenizer_files.h"
#include "model/required_tensors.h"
#include "plan/layout.h"

namespace lariat {
namespace {

using std::chrono::milliseconds;

milliseconds ms(double seconds) {
  return milliseconds(static_cast<int64_t>(seconds * 1000));
}

SchedConfig sched_config(const LayoutOptions& layout, const DecoderConfig& c, const Capacity& capacity) {
  SchedConfig s;
  s.max_batch = layout.max_batch;
  s.chunk_tokens = layout.chunk_tokens;
  s.context = static_cast<int32_t>(capacity.context);
  s.work.token = 2.0 * static_cast<double>(parameter_count(c) - c.vocab * c.hidden);
  s.work.depth = 4.0 * static_cast<double>(c.heads * c.head_dim * c.layers);
  // Layers of different windows share one number: the widest bounds the work.
  for (const LayerMask& mask : c.masks) {
    if (mask.window == 0) return s;
    s.work.window = std::max(s.work.window, mask.window);
  }
  return s;
}

SamplingDefaults sampling_defaults(const ModelFiles& files) {
  const GenerationDefaults& g = files.generation;
  SamplingDefaults d;
  if (g.temperature) d.temperature = static_cast<float>(*g.temperature);
  if (g.do_sample && !*g.do_sample) d.temperature = 0.0f;
  if (g.top_p) d.top_p = static_cast<float>(*g.top_p);
  d.top_k = g.top_k;
  if (g.min_p) d.min_p = static_cast<float>(*g.min_p);
  if (g.repetition_penalty) d.repetition_penalty = static_cast<float>(*g.repetition_penalty);
  d.end_ids = files.eos_ids;
  return d;
}

Result<std::unique_ptr<EngineImpl>> start_engine(const Served& served, const ModelOptions& model,
                                                 const LayoutOptions& layout, const ServeOptions& options) {
  LARIAT_ASSIGN(auto group, launch_ranks({.model = model,
                                          .layout = layout,
                                          .stall_timeout = ms(options.stall_timeout_s),
                                          .heartbeat_timeout = ms(options.heartbeat_timeout_s),
                                          .group_dir = served.group_dir.path(),
                                          .poison = false}));
  EngineOptions engine;
  engine.model = served.context.id;
  engine.sched = sched_config(layout, served.files.config, served.capacity);
  if (layout.layout().world() > 1) {
    LARIAT_ASSIGN(ScheduleConstants constants, schedule_constants(served.files.config, layout));
    engine.schedule = std::make_shared<const ScheduleConstants>(std::move(constants));
    engine.prefill = layout.strategy;
  }
  engine.max_restarts = options.max_restarts;
  engine.request_timeout = ms(options.request_timeout_s);
  auto impl = std::make_unique<EngineImpl>(engine, std::move(group), served.tokenizer.get());
  impl->start();
  return impl;
}

}  // namespace

Result<std::unique_ptr<Served>> start_served(const ModelOptions& model_options, const LayoutOptions& options,
                                             const ServeOptions& serve) {
  auto served = std::make_unique<Served>();
  LARIAT_ASSIGN(OpenModel model, open_model(model_options, options.dtype));
  LARIAT_ASSIGN(served->capacity, plan_capacity(model, options));
  LARIAT_RETURN_IF_ERROR(check_fits(served->capacity));
  served->files = std::move(model.files);
  LARIAT_ASSIGN(served->tokenizer, load_tokenizer(*served->files.files));
  if (served->tokenizer) {
    LARIAT_ASSIGN(served->codec, ModelCodec::create(*served->tokenizer));
  }
  served->context = {.id = served->files.id,
                     .codec = served->codec.get(),
                     .defaults = sampling_defaults(served->files),
                     .context_tokens = served->capacity.context_asked,
                     .kv_tokens_max = served->capacity.pages_total * served->capacity.page_tokens,
                     .vocab = served->files.config.vocab,
                     .created = static_cast<int64_t>(std::time(nullptr))};
  const LayoutOptions settled = settled_layout(options, resolved_plan(options, served->capacity));
  LARIAT_ASSIGN(served->group_dir, PrivateDir::create());
  LARIAT_ASSIGN(served->engine, start_engine(*served, model_options, settled, serve));
  return served;
}

Status wait_until_ready(EngineImpl& engine, const std::function<bool()>& stop) {
  ProgressBar bar("starting ranks");
  while (true) {
    Status ready = engine.wait_ready(milliseconds(100));
    if (ready.ok()) return Ok{};
    if (ready.error().code != Errc::kDeadlineExceeded) return ready;
    if (stop && stop()) return make_error(Errc::kCancelled, "interrupted while the ranks were starting");
    bar.note(engine.state().reason);
  }
}

}  // namespace lariat
