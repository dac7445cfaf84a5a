#include "worker/step_agreement.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "comm/local/local_groups.h"

namespace lariat {
namespace {

constexpr uint64_t kFingerprint[2] = {3, 5};

void on_threads(int32_t world, const std::function<void(int32_t, const StepAgreement&)>& body) {
  auto groups = make_local_groups(world);
  std::vector<std::jthread> threads;
  for (int32_t r = 0; r < world; ++r) {
    threads.emplace_back(
        [&, r] { body(r, StepAgreement(groups[static_cast<size_t>(r)].get(), std::chrono::seconds(30))); });
  }
}

TEST(StepAgreement, OneRanksLackIsTheSameErrorOnAllAndTheGroupGoesOn) {
  for (const int32_t world : {2, 3, 5}) {
    on_threads(world, [&](int32_t r, const StepAgreement& a) {
      ASSERT_TRUE(a.ready(Ok{}, kFingerprint).ok());
      const Status own =
          r == 1 ? Status(make_error(Errc::kResourceExhausted, "cannot allocate 8192 bytes")) : Status(Ok{});
      const Status agreed = a.ready(own, kFingerprint);
      ASSERT_FALSE(agreed.ok());
      EXPECT_EQ(agreed.error().code, Errc::kResourceExhausted);
      EXPECT_EQ(agreed.error().message, "rank 1: cannot allocate 8192 bytes");
      EXPECT_EQ(agreed.error().param, "rank 1");
      ASSERT_TRUE(a.ready(Ok{}, kFingerprint).ok()) << "the next step is as any other";
      std::vector<int32_t> tokens = {r == 0 ? 7 : -1, r == 1 ? 9 : -1, -1};
      ASSERT_TRUE(a.share_tokens(tokens).ok());
      EXPECT_EQ(tokens, (std::vector<int32_t>{7, 9, -1}));
    });
  }
}

TEST(StepAgreement, TheLowestOfSeveralIsNamedAndALongMessageIsCut) {
  on_threads(3, [&](int32_t r, const StepAgreement& a) {
    const Status own =
        r > 0 ? Status(make_error(Errc::kCancelled, std::string(1000, static_cast<char>('a' + r))))
              : Status(Ok{});
    const Status agreed = a.ready(own, kFingerprint);
    ASSERT_FALSE(agreed.ok());
    EXPECT_EQ(agreed.error().code, Errc::kCancelled);
    EXPECT_TRUE(agreed.error().message.starts_with("rank 1: bbbb")) << agreed.error().message;
    EXPECT_LT(agreed.error().message.size(), 300u);
  });
}

TEST(StepAgreement, ARankThatDerivedAnotherScheduleIsNamed) {
  on_threads(3, [&](int32_t r, const StepAgreement& a) {
    const uint64_t own[2] = {3, r == 2 ? 6u : 5u};
    const Status agreed = a.ready(Ok{}, own);
    ASSERT_FALSE(agreed.ok());
    EXPECT_NE(agreed.error().message.find("rank 2 derived another schedule"), std::string::npos)
        << agreed.error().message;
  });
}

TEST(StepAgreement, TwoTokensForOneRowAreAnError) {
  on_threads(2, [&](int32_t r, const StepAgreement& a) {
    std::vector<int32_t> tokens = {r};
    EXPECT_FALSE(a.share_tokens(tokens).ok());
  });
}

TEST(StepAgreement, OneRankAgreesWithItself) {
  const StepAgreement alone(nullptr, std::chrono::seconds(30));
  EXPECT_TRUE(alone.ready(Ok{}, kFingerprint).ok());
  EXPECT_EQ(alone.ready(make_error(Errc::kCancelled, "enough"), kFingerprint).error().message, "enough");
  std::vector<int32_t> tokens = {4};
  EXPECT_TRUE(alone.share_tokens(tokens).ok());
}

}  // namespace
}  // namespace lariat
