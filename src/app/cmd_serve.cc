// lariat serve: the head process. Listens once the ranks are ready; SIGTERM and SIGINT drain.
#include <fmt/core.h>
#include <malloc.h>
#include <pthread.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "app/commands.h"
#include "app/serving.h"
#include "app/tokenizer_files.h"
#include "base/log.h"
#include "http/http_server.h"

namespace lariat {
namespace {

// Signals are taken by one thread that waits for them, never by a handler; to be called before threads start.
sigset_t block_end_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

void print_plan(const Served& served, const LayoutOptions& layout) {
  const Capacity& c = served.capacity;
  fmt::print(stderr, "{}: {}, {} threads a rank, {} KV pages of {} tokens, context {} tokens\n",
             served.context.id, layout_name(layout), layout.threads, c.pages_total, c.page_tokens,
             c.max_context);
  if (const std::string lowered = lowered_context(layout, c); !lowered.empty())
    fmt::print(stderr, "warning: {}\n", lowered);
}

// Tokenizer and chat template, without anything that loads.
Status check_text_side(const ModelOptions& options) {
  LARIAT_ASSIGN(const ModelFiles files, open_files(options, std::nullopt));
  LARIAT_ASSIGN(const auto tokenizer, load_tokenizer(*files.files));
  if (tokenizer) LARIAT_RETURN_IF_ERROR(ModelCodec::create(*tokenizer));
  return Ok{};
}

bool was_signalled(const sigset_t& end_signals) {
  constexpr timespec kNow{};
  return sigtimedwait(&end_signals, nullptr, &kNow) > 0;
}

// Who asks a second time does not want to wait for the drain. The ranks go with this process.
void end_at_next_signal(sigset_t end_signals) {
  std::thread([end_signals] {
    int signal = 0;
    sigwait(&end_signals, &signal);
    log_info("asked again: ending at once");
    std::_Exit(128 + signal);
  }).detach();
}

}  // namespace

Result<int> cmd_serve(const OptionValues& values) {
  Faults faults(values);
  const ModelOptions model = read_model_options(values, faults);
  const LayoutOptions layout = read_layout_options(values, faults);
  const ServeOptions options = read_serve_options(values, faults);
  // A rank that waits for a stuck one is told before its own watchdog takes the wait for a fault of its own.
  if (layout.layout().world() > 1 &&
      options.stall_timeout_s * 1000 <= static_cast<double>(layout.comm_timeout.count())) {
    faults.add(
        fmt::format("--stall-timeout {} must be longer than --comm-timeout {}: ranks wait that long for one "
                    "that is stuck",
                    options.stall_timeout_s, static_cast<double>(layout.comm_timeout.count()) / 1000));
  }
  HttpOptions http;
  http.host = options.host;
  if (!is_listen_address(http.host)) {
    faults.add(fmt::format("{}: '{}' is not an IP address; 0.0.0.0 listens on every one of this machine",
                           values.find("host")->origin, http.host));
  }
  http.port = options.port;
  if (!options.api_key_file.empty()) {
    auto keys = read_api_keys(options.api_key_file.string());
    if (keys.ok()) {
      http.api_keys = std::move(keys).value();
    } else {
      faults.add("--api-key-file: " + keys.error().message);
    }
  }
  if (!faults.empty()) return faults.error();
  if (options.dry_run) {
    LARIAT_RETURN_IF_ERROR(check_text_side(model));
    return cmd_plan(values);
  }

  // Bodies of requests are returned to the system when they go. By itself the allocator would learn from the
  // first that such sizes are common, and keep them.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  const sigset_t end_signals = block_end_signals();
  LARIAT_ASSIGN(const auto served, start_served(model, layout, options));
  print_plan(*served, layout);
  // The port is bound first: a port in use is known before the weights are read, and /health can say
  // "forming".
  LARIAT_ASSIGN(const auto server, HttpServer::start(http, *served->engine, served->context));
  const Status ready = wait_until_ready(*served->engine, [&] { return was_signalled(end_signals); });
  if (!ready.ok() && ready.error().code == Errc::kCancelled) {
    log_info("{}", ready.error().message);
    return 0;
  }
  LARIAT_RETURN_IF_ERROR(ready);
  fmt::print(stderr, "listening on http://{}:{}\n", options.host, server->port());

  int signal = 0;
  sigwait(&end_signals, &signal);
  const auto drain = std::chrono::milliseconds(static_cast<int64_t>(options.drain_timeout_s * 1000));
  log_info("{}: finishing what runs, for at most {} s", signal == SIGINT ? "interrupted" : "terminated",
           options.drain_timeout_s);
  end_at_next_signal(end_signals);
  server->stop(drain);
  served->engine->stop(std::chrono::milliseconds(0));
  return 0;
}

}  // namespace lariat
