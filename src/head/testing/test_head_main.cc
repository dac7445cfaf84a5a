// A head process for tests that kill it: forms a group of the test rank given as first argument, prints its
// own and the rank's process id once that loads or is ready, and waits to be killed. Further arguments go to
// the rank.
#include <unistd.h>

#include <cstdio>

#include "head/testing/test_processes.h"

namespace lariat {
namespace {

int head_main(int argc, char** argv) {
  if (argc < 2) return 2;
  ProcessEngineOptions options;
  options.program = argv[1];
  options.engine.sched.context = 4096;
  options.args = [more = std::vector<std::string>(argv + 2, argv + argc)](Epoch) { return more; };
  auto engine = make_process_engine(options);
  if (!engine.ok()) return 1;
  (*engine)->start();
  for (int i = 0; i < 3000; ++i) {
    const EngineState state = (*engine)->state();
    if (state.ready || state.reason.find("reading the toy") != std::string::npos) {
      std::printf("%d %lld\n", static_cast<int>(getpid()), static_cast<long long>(state.ranks[0].pid));
      std::fflush(stdout);
      for (;;) pause();
    }
    usleep(10'000);
  }
  return 1;
}

}  // namespace
}  // namespace lariat

int main(int argc, char** argv) {
  return lariat::head_main(argc, argv);
}
