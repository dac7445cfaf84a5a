// A rank process around the toy model, for tests that kill, stop and starve processes. Arguments are
// key=value.
#include <atomic>
#include <charconv>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "worker/testing/toy_executor.h"
#include "worker/worker_main.h"

namespace lariat {

// Has a name, for the stack dump to show.
__attribute__((noinline)) void spin_forever_in_a_named_function() {
  static std::atomic<bool> never{false};
  while (!never.load(std::memory_order_relaxed)) {
  }
}

namespace {

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string arg = argv[i];
      const size_t equals = arg.find('=');
      if (equals != std::string::npos) values_[arg.substr(0, equals)] = arg.substr(equals + 1);
    }
  }
  std::string text(const std::string& key) const {
    const auto it = values_.find(key);
    return it == values_.end() ? "" : it->second;
  }
  int number(const std::string& key, int otherwise) const {
    const std::string value = text(key);
    int number = otherwise;
    std::from_chars(value.data(), value.data() + value.size(), number);
    return number;
  }

 private:
  std::map<std::string, std::string> values_;
};

int rank_main(const Arguments& args) {
  WorkerOptions options;
  options.address = args.text("address");
  options.head_pid = args.number("head", 0);
  options.rank.rank = args.number("rank", 0);
  options.rank.world = args.number("world", 1);
  options.rank.stall_timeout = std::chrono::milliseconds(args.number("stall_ms", 60'000));
  options.heartbeat_interval = std::chrono::milliseconds(args.number("beat_ms", 100));

  ToyOptions toy;
  toy.pages_total = args.number("pages", 1024);
  toy.per_token = std::chrono::microseconds(args.number("token_us", 0));
  const int spin_at = args.number("spin_at_pos", -1);
  const int exit_at = args.number("exit_at_pos", -1);
  const int throw_at = args.number("throw_at_pos", -1);
  toy.before_step = [spin_at, exit_at, throw_at](const StepPlan& plan) {
    if (plan.rows[0].pos0 == spin_at) spin_forever_in_a_named_function();
    if (plan.rows[0].pos0 == exit_at) _exit(3);
    if (plan.rows[0].pos0 == throw_at) throw std::runtime_error("a kernel that gave up");
  };
  if (args.number("exit_early", 0) != 0) return args.number("exit_early", 0);
  return run_worker(options, [&](const LoadProgressFn& progress) -> Result<std::unique_ptr<StepExecutor>> {
    const int load_ms = args.number("load_ms", 0);
    for (int ms = 0; ms < load_ms; ms += 10) {
      progress(static_cast<double>(ms) / load_ms, "reading the toy");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (!args.text("load_error").empty()) return make_error(Errc::kCorruptData, args.text("load_error"));
    return toy_factory(toy)(progress);
  });
}

}  // namespace
}  // namespace lariat

int main(int argc, char** argv) {
  return lariat::rank_main(lariat::Arguments(argc, argv));
}
