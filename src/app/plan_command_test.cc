// What `plan` refuses and warns of, by its command line, and that commands which load refuse the same alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/golden_test_util.h"
#include "app/program_test_util.h"

namespace lariat {
namespace {

using testing::HasSubstr;

struct Planned {
  Ran ran;
  nlohmann::json out;
};

// needle-5m has 4 query and 2 KV heads.
Planned plan(const std::string& args) {
  Planned planned;
  planned.ran = run_lariat("plan needle-5m --json " + args);
  planned.out = nlohmann::json::parse(planned.ran.out, nullptr, false);
  EXPECT_TRUE(planned.out.is_object()) << planned.ran.out << planned.ran.err;
  return planned;
}

std::vector<std::string> settings(const nlohmann::json& list) {
  std::vector<std::string> out;
  for (const auto& r : list) {
    out.push_back(r.at("setting"));
    EXPECT_FALSE(r.at("reason").get<std::string>().empty());
  }
  return out;
}

// The nearest setting that a refusal names is one that works.
void expect_mended(const std::string& args, const std::string& setting, const nlohmann::json& refusal) {
  const std::string nearest = refusal.at("nearest");
  const Planned mended = plan(args + " --" + setting + " " + nearest.substr(0, nearest.find(" or ")));
  EXPECT_EQ(mended.ran.exit_code, 0) << mended.ran.out << mended.ran.err;
}

TEST(PlanCommand, LayoutsAreRefusedAsAConfiguration) {
  const Planned p = plan("--layout tp=3");
  EXPECT_EQ(p.ran.exit_code, 2);
  ASSERT_EQ(settings(p.out.at("refusals")), std::vector<std::string>{"layout"});
  expect_mended("", "layout", p.out.at("refusals")[0]);
  EXPECT_EQ(run_lariat("bench needle-5m --layout tp=3 --pp 16").exit_code, 2);
}

TEST(PlanCommand, MemoryThatIsShortIsAResourceRefusal) {
  const Planned p = plan("--kv-memory 1");
  EXPECT_EQ(p.ran.exit_code, 3);
  ASSERT_EQ(settings(p.out.at("refusals")), std::vector<std::string>{"kv-memory"});
  expect_mended("", "kv-memory", p.out.at("refusals")[0]);
}

TEST(PlanCommand, AllThatCanBeKnownTogetherIsRefusedTogether) {
  const Planned p = plan("--layout tp=3 --context 99999999 --kv-memory 1");
  EXPECT_EQ(p.ran.exit_code, 2);
  EXPECT_EQ(settings(p.out.at("refusals")), (std::vector<std::string>{"layout", "context", "kv-memory"}));
  EXPECT_TRUE(p.out.at("ranks").empty()) << "numbers of another layout";
  for (const auto& r : p.out.at("refusals")) EXPECT_NE(r.at("nearest"), "") << r;
}

TEST(PlanCommand, UnequalSharesOverDuplicates) {
  const std::string layout = "--layout tp=4,cp=2";
  const Planned p = plan(layout + " --rank-shares 3,1");
  EXPECT_EQ(p.ran.exit_code, 2);
  ASSERT_EQ(settings(p.out.at("refusals")), std::vector<std::string>{"rank-shares"});
  expect_mended(layout, "rank-shares", p.out.at("refusals")[0]);
}

TEST(PlanCommand, PeriodThatIsTooLong) {
  const std::string ranks = "--ranks 3 --rank-shares 1,2,40";
  const Planned p = plan(ranks + " --interleave 65536");
  EXPECT_EQ(p.ran.exit_code, 2);
  ASSERT_EQ(settings(p.out.at("refusals")), std::vector<std::string>{"interleave"});
  EXPECT_EQ(p.out.at("refusals")[0].at("nearest"), std::to_string((1 << 20) / 43));
}

// docs/design.md section 4: replicated K/V implies pass_kv.
TEST(PlanCommand, ReplicatedRefusesPassQInEveryCommand) {
  const std::string flags = " --ranks 2 --kv replicated --strategy pass_q";
  const Planned p = plan(flags);
  EXPECT_EQ(p.ran.exit_code, 2);
  ASSERT_EQ(settings(p.out.at("refusals")), std::vector<std::string>{"strategy"});
  EXPECT_EQ(p.out.at("refusals")[0].at("nearest"), "pass_kv");
  EXPECT_EQ(plan("--ranks 2 --kv replicated --strategy pass_kv").ran.exit_code, 0);
  const test::TempDir dir;
  for (const std::string command : {"run needle-5m -p hello", "bench needle-5m --pp 16",
                                    "serve needle-5m --port 0", "serve needle-5m --dry-run"}) {
    const Ran ran = run_lariat(command + flags);
    EXPECT_EQ(ran.exit_code, 2) << command << ran.err;
    EXPECT_THAT(ran.err + ran.out, HasSubstr("pass_q")) << command;
    EXPECT_THAT(ran.err + ran.out, HasSubstr("pass_kv")) << command;
  }
  const std::filesystem::path golden = golden_path("llama-gqa");
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << "the rest needs " << golden;
  const Ran verify = run_lariat(
      fmt::format("verify {} --golden {}/golden.safetensors{}", golden.string(), golden.string(), flags));
  EXPECT_EQ(verify.exit_code, 2) << verify.err;
  EXPECT_THAT(verify.err, HasSubstr("--strategy"));
}

TEST(PlanCommand, DevicesAreOneOrOneARank) {
  const Ran three = run_lariat("plan needle-5m --ranks 2 --device cpu,cpu,cpu");
  EXPECT_EQ(three.exit_code, 2);
  EXPECT_THAT(three.err, HasSubstr("3 devices for 2 ranks"));
  for (const char* devices : {"cpu", "auto", "cpu,cpu", "cpu,auto"})
    EXPECT_EQ(run_lariat(fmt::format("plan needle-5m --ranks 2 --device {}", devices)).exit_code, 0)
        << devices;
}

TEST(PlanCommand, PoolSmallerThanTheContextAskedForIsSaid) {
  const Planned p = plan("--ranks 3 --kv-memory 1M --context 8192");
  EXPECT_EQ(p.ran.exit_code, 0);
  EXPECT_LT(p.out.at("max_context"), 8192);
  ASSERT_EQ(settings(p.out.at("warnings")), std::vector<std::string>{"kv-memory"});
  EXPECT_THAT(p.out.at("warnings")[0].at("reason"), HasSubstr(p.out.at("max_context").dump()));
  EXPECT_THAT(p.out.at("warnings")[0].at("reason"), HasSubstr("8192"));
  const std::string enough = p.out.at("warnings")[0].at("nearest");
  const Planned mended = plan("--ranks 3 --context 8192 --kv-memory " + enough);
  EXPECT_EQ(mended.out.at("max_context"), 8192);
  EXPECT_EQ(mended.out.at("warnings"), nlohmann::json::array());
  EXPECT_THAT(run_lariat("plan needle-5m --ranks 3 --kv-memory 1M --context 8192").out,
              HasSubstr("warning: --kv-memory"));
}

TEST(PlanCommand, SharesThatMakeOneRankTheBrake) {
  const Planned p = plan("--ranks 3 --rank-shares 1,2,40");
  EXPECT_EQ(p.ran.exit_code, 0);
  ASSERT_EQ(settings(p.out.at("warnings")), std::vector<std::string>{"rank-shares"});
  EXPECT_THAT(p.out.at("warnings")[0].at("reason"), HasSubstr("rank 2 computes 93 % of the positions"));
  EXPECT_THAT(p.out.at("warnings")[0].at("reason"), HasSubstr("0.36 of the speed"));
  EXPECT_NEAR(p.out.at("prefill_speed_of_equal_shares").get<double>(), 43.0 / 120, 1e-9);
  EXPECT_NEAR(p.out.at("ranks")[2].at("work_share").get<double>(), 40.0 / 43, 1e-9);
  const Planned equal = plan("--ranks 3");
  EXPECT_EQ(equal.out.at("warnings"), nlohmann::json::array());
  EXPECT_EQ(equal.out.at("prefill_speed_of_equal_shares"), 1.0);
  const Planned both = plan("--layout tp=2,cp=2 --rank-shares 3,1");
  EXPECT_THAT(both.out.at("warnings")[0].at("reason"), HasSubstr("ranks 0 to 1 compute 75 %"));
}

}  // namespace
}  // namespace lariat
