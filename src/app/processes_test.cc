// verify and bench with ranks as real processes, by the program's command line: every golden model, the
// layouts spread over them; what bench says of each rank; a rank that dies.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "app/golden_test_util.h"
#include "app/program_test_util.h"
#include "app/verify.h"
#include "base/test_processes.h"
#include "head/child_process.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* model;
  const char* args;
};

class VerifyProcesses : public testing::TestWithParam<Case> {
 protected:
  // A loaded machine may be slow to run a rank that others wait for.
  static Ran verify(const std::string& args) {
    const std::string folder = golden_path(GetParam().model).string();
    return run_lariat(fmt::format(
        "verify {} --golden {}/golden.safetensors --json --threads 1 --poison --comm-timeout 60 {} {}",
        folder, folder, GetParam().args, args));
  }
};

// The same plans, the same schedules and the same order of additions: another transport changes no bit.
TEST_P(VerifyProcesses, AsTheReferenceAndAsThreadsDo) {
  if (!fs::exists(golden_path(GetParam().model)))
    GTEST_SKIP() << golden_path(GetParam().model) << " is not here";
  const Ran processes = verify("");
  ASSERT_EQ(processes.exit_code, 0) << processes.err << processes.out;
  const auto report = nlohmann::json::parse(processes.out);
  EXPECT_LE(report.at("max_abs_logit_error").get<double>(), kLogitErrorMax);
  EXPECT_TRUE(report.at("greedy_match").get<bool>()) << processes.err;
  EXPECT_GE(report.at("tokens"), 181);
  const Ran threads = verify("--transport local");
  ASSERT_EQ(threads.exit_code, 0) << threads.err << threads.out;
  EXPECT_EQ(nlohmann::json::parse(threads.out).at("max_abs_logit_error"), report.at("max_abs_logit_error"));
}

// Heads and KV heads of each model, for what tp means to it: docs in shared/golden.
INSTANTIATE_TEST_SUITE_P(
    Diagonal, VerifyProcesses,
    testing::Values(Case{"llama-gqa", "--layout tp=4 --chunk-tokens 64"},  // 2 KV heads
                    Case{"llama-d64", "--ranks 2 --interleave 16 --chunk-tokens 64"},
                    Case{"llama-d128", "--layout tp=2 --chunk-tokens 0"},
                    Case{"llama-linear", "--ranks 3 --chunk-tokens 0"},
                    Case{"llama-mha-bias", "--layout tp=2,cp=2 --chunk-tokens 0"},
                    Case{"llama-yarn", "--layout tp=2 --interleave 64 --chunk-tokens 7"},  // 1 KV head
                    Case{"llama31-rope", "--layout tp=2,cp=2 --interleave 16 --chunk-tokens 64"},
                    Case{"qwen2", "--ranks 2 --rank-shares 3,1 --chunk-tokens 7"},
                    Case{"qwen3-mqa", "--ranks 3 --kv replicated --chunk-tokens 64"},
                    Case{"qwen3-gqa", "--ranks 3 --rank-shares 1,2,4 --interleave 16 --chunk-tokens 64"},
                    Case{"qwen3-d128", "--ranks 2 --kv replicated --interleave 64 --chunk-tokens 0"},
                    Case{"mistral-swa", "--ranks 3 --strategy pass_q --chunk-tokens 7"},
                    Case{"mistral-swa", "--ranks 2 --strategy pass_kv --chunk-tokens 1"}),
    [](const auto& param) {
      std::string name = std::to_string(param.index) + "_" + param.param.model;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// One rank of two threads and two of one thread run the same way, so their numbers can be held together.
TEST(CommandLine, AllFaultsOfAConfigurationAreTold) {
  const test::TempDir dir;
  const fs::path config = dir.path() / "lariat.toml";
  std::ofstream(config) << "colour = 1\nthreads = -1\n";
  const Ran ran = run_lariat(fmt::format(
      "serve needle-5m --config {} --foo 1 --port 99999 --host nobody --ranks 2 --stall-timeout 2",
      config.string()));
  EXPECT_EQ(ran.exit_code, 2);
  for (const char* fault :
       {"'colour' is no option", "threads: '-1'", "not expected: --foo 1", "--port: '99999'",
        "--host: 'nobody'", "--stall-timeout 2 must be longer than --comm-timeout 10"})
    EXPECT_NE(ran.err.find(fault), std::string::npos) << fault << " is not in\n" << ran.err;
}

TEST(CommandLine, ARankRefusesWhatNoHeadWouldSay) {
  const Ran ran =
      run_lariat("worker needle-5m --listen 0.0.0.0:1999 --rank 5 --ranks 3 --group-dir /nowhere");
  EXPECT_EQ(ran.exit_code, 2);
  for (const char* fault : {"'0.0.0.0:1999' is not unix:PATH", "--rank 5", "'/nowhere' is no folder"})
    EXPECT_NE(ran.err.find(fault), std::string::npos) << fault << " is not in\n" << ran.err;
}

TEST(CommandLine, NoFolderForTemporaryFilesIsAnError) {
  setenv("TMPDIR", "/nonexistent", 1);
  std::FILE* pipe =
      popen(fmt::format("exec timeout 60 {} serve needle-5m --ranks 2 --port 0 2>&1", kProgram).c_str(), "r");
  unsetenv("TMPDIR");
  ASSERT_TRUE(pipe);
  char text[4096] = {};
  const size_t n = std::fread(text, 1, sizeof text - 1, pipe);
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_NE(std::string(text, n).find("/nonexistent"), std::string::npos) << text;
}

TEST(BenchProcesses, EveryRankIsMeasuredAndWeightsAreInMemoryOnce) {
  const test::TempDir dir;
  const fs::path file = dir.path() / "bench.json";
  nlohmann::json runs[2];
  for (const int ranks : {1, 2}) {
    const Ran ran = run_lariat(fmt::format(
        "bench needle-5m --ranks {} --threads {} --pp 1000 --tg 4 --repeat 1 --warmup 0 --page-tokens 64 "
        "--comm-timeout 60 --json-out {}",
        ranks, 3 - ranks, file.string()));
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const auto report = nlohmann::json::parse(contents(file));
    EXPECT_EQ(report.at("transport"), "gloo");
    ASSERT_EQ(report.at("runs").size(), 2u);
    const nlohmann::json& run = runs[ranks - 1] = report.at("runs").at(0);
    for (const char* key :
         {"peak_rss_bytes_per_rank", "pss_bytes_per_rank", "comm_wait_ms_per_rank", "kv_bytes_per_rank"}) {
      ASSERT_EQ(run.at(key).size(), static_cast<size_t>(ranks)) << key;
      for (const auto& value : run.at(key)) {
        if (ranks > 1 || std::string(key) != "comm_wait_ms_per_rank") {
          EXPECT_GT(value, 0) << key;
        }
      }
    }
  }
  const auto weights = runs[0].at("weights_bytes_shared").get<int64_t>();
  EXPECT_GT(weights, 9 << 20);
  EXPECT_EQ(runs[1].at("weights_bytes_shared"), weights) << "two ranks hold more than one copy";
  // 16 pages of 64 slots hold 1000 positions; a rank of two has 8 pages of them, and may have one more.
  const auto kv_alone = runs[0].at("kv_bytes_per_rank").at(0).get<int64_t>();
  for (const auto& kv : runs[1].at("kv_bytes_per_rank")) EXPECT_LE(kv.get<int64_t>(), kv_alone * 9 / 16);
  // A page that two processes share counts half in each: both together hold the weights once.
  const auto pss = runs[1].at("pss_bytes_per_rank").get<std::vector<int64_t>>();
  const auto peak = runs[1].at("peak_rss_bytes_per_rank").get<std::vector<int64_t>>();
  EXPECT_LT(std::accumulate(pss.begin(), pss.end(), int64_t{0}),
            std::accumulate(peak.begin(), peak.end(), int64_t{0}) - weights);
}

// Child processes of `pid`, from whichever of its threads.
std::set<pid_t> children_of(pid_t pid) {
  std::set<pid_t> children;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
    std::ifstream in(task.path() / "children");
    for (pid_t child = 0; in >> child;) children.insert(child);
  }
  return children;
}

TEST(BenchProcesses, ALostRankIsNamedAndNothingIsLeft) {
  const test::TempDir dir;
  const fs::path out = dir.path() / "out";
  const fs::path err = dir.path() / "err";
  // The first measurement is short, the second goes on until the rank is killed.
  auto bench = ChildProcess::spawn(
      "/bin/sh",
      {"sh", "-c",
       fmt::format("exec {} bench needle-5m --ranks 2 --threads 1 --pp 8,16384 --repeat 20 >{} 2>{}",
                   kProgram, out.string(), err.string())});
  ASSERT_TRUE(bench.ok()) << bench.error().message;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (contents(out).empty() && std::chrono::steady_clock::now() < deadline) {
    ASSERT_FALSE((*bench)->poll()) << contents(err);
    poll(nullptr, 0, 10);
  }
  const std::set<pid_t> ranks = children_of((*bench)->pid());
  ASSERT_EQ(ranks.size(), 2u) << contents(err);
  pid_t victim = 0;
  for (const pid_t pid : ranks) {
    const std::string command = contents(fmt::format("/proc/{}/cmdline", pid));
    if (command.find(std::string("--rank\0"
                                 "1\0",
                                 9)) != std::string::npos)
      victim = pid;
  }
  ASSERT_NE(victim, 0);
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  const auto ended = (*bench)->wait(std::chrono::seconds(30));
  ASSERT_TRUE(ended) << "bench waits for a rank that is gone";
  EXPECT_NE(ended->text(), "exit code 0");
  EXPECT_NE(contents(err).find("rank 1"), std::string::npos) << contents(err);
  for (const pid_t pid : ranks) EXPECT_NE(kill(pid, 0), 0) << "rank process " << pid << " is left";
}

}  // namespace
}  // namespace lariat
