// Time of a ring shift and of a sum between processes on loopback, by size. Prints one line a size.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "comm/gloo/gloo_groups.h"

namespace lariat {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

template <typename F>
double us_each(Group& g, int rounds, F&& call) {
  if (!g.barrier()->wait(CommClock::now() + kLimit).ok()) std::exit(1);
  const auto since = CommClock::now();
  for (int i = 0; i < rounds; ++i)
    if (!call()->wait(CommClock::now() + kLimit).ok()) std::exit(1);
  return std::chrono::duration<double, std::micro>(CommClock::now() - since).count() / rounds;
}

void run(const std::filesystem::path& dir, int32_t world, int32_t rank) {
  GlooOptions options;
  options.store_dir = dir;
  options.prefix = fmt::format("world-{}", world);
  options.layout = {1, world};
  options.rank = Rank(rank);
  auto groups = make_gloo_rank_groups(options);
  if (!groups.ok()) {
    fmt::print(stderr, "{}\n", groups.error().message);
    std::exit(1);
  }
  Group& g = *groups->world;
  for (const size_t bytes :
       {size_t{4}, size_t{4} << 10, size_t{64} << 10, size_t{1} << 20, size_t{64} << 20}) {
    std::vector<float> out(bytes / 4), in(bytes / 4);
    const int rounds = bytes > (1 << 20) ? 3 : bytes > (64 << 10) ? 20 : 1000;
    const auto shift = [&] { return g.ring_shift({out.data(), bytes, {}}, {in.data(), bytes, {}}); };
    const auto sum = [&] { return g.all_reduce_sum(out.data(), static_cast<int64_t>(bytes / 4), {}); };
    (void)us_each(g, 2, shift);
    const double shift_us = us_each(g, rounds, shift);
    const double sum_us = us_each(g, rounds, sum);
    if (rank == 0) {
      fmt::print(
          "{} ranks, {:>8} bytes: ring_shift {:>9.1f} us ({:.2f} GB/s each way), all_reduce_sum {:>9.1f} "
          "us\n",
          world, bytes, shift_us, static_cast<double>(bytes) / shift_us / 1e3, sum_us);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace lariat

int main() {
  std::string name = (std::filesystem::temp_directory_path() / "lariat-bench-XXXXXX").string();
  if (!mkdtemp(name.data())) return 1;
  bool failed = false;
  for (const int32_t world : {2, 3}) {
    for (int32_t rank = 0; rank < world; ++rank) {
      if (fork() == 0) {
        lariat::run(name, world, rank);
        std::exit(0);
      }
    }
    for (int32_t rank = 0; rank < world; ++rank) {
      int status = 0;
      wait(&status);
      failed = failed || status != 0;
    }
  }
  std::filesystem::remove_all(name);
  return failed ? 1 : 0;
}
