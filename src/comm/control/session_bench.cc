// What the control plane adds to a step: a plan down and an outcome up over a unix socket, nobody computing.
#include <benchmark/benchmark.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "comm/control/control_client.h"
#include "comm/control/control_server.h"

namespace lariat {
namespace {

// Arguments: rows of the plan, pages in each row's table.
void round_trip(benchmark::State& state) {
  char folder[] = "/tmp/lariat-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) return state.SkipWithError("no folder for the socket");
  const std::string address = std::string("unix:") + folder + "/rank";
  std::unique_ptr<ControlServer> server;
  auto listening = ControlServer::listen(address, {[&](ToRank m) {
                                                     const auto& plan = std::get<StepPlan>(m);
                                                     StepOutcome outcome;
                                                     outcome.step = plan.step;
                                                     outcome.rows.resize(plan.rows.size());
                                                     (void)server->send(outcome);
                                                   },
                                                   [](const Error&) {}});
  if (!listening.ok()) return state.SkipWithError(listening.error().message.c_str());
  server = std::move(listening).value();
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t answered = 0;
  auto client = ControlClient::connect({address, std::chrono::seconds(10), {}},
                                       {[&](FromRank m) {
                                          const std::lock_guard lock(mutex);
                                          answered = std::get<StepOutcome>(m).step.get();
                                          changed.notify_one();
                                        },
                                        [](const Error&) {}});
  if (!client.ok()) return state.SkipWithError(client.error().message.c_str());
  StepPlan plan;
  plan.rows.resize(static_cast<size_t>(state.range(0)));
  for (PlanRow& row : plan.rows) {
    row.tokens = {7};
    row.pages.emplace_back();
    for (int32_t i = 0; i < state.range(1); ++i) row.pages[0].emplace_back(i);
  }
  uint64_t step = 0;
  for ([[maybe_unused]] auto _ : state) {
    plan.step = StepId(++step);
    (void)(*client)->send(plan);
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(10), [&] { return answered == step; });
  }
  client->reset();
  server.reset();
  std::filesystem::remove_all(folder);
}
BENCHMARK(round_trip)->Args({1, 8})->Args({8, 8})->Args({8, 256})->Args({1, 2048})->UseRealTime();

}  // namespace
}  // namespace lariat

BENCHMARK_MAIN();
