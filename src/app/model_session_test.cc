// What a layout makes of a model, before anything is loaded.
#include "app/model_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lariat {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// C28: a pool of 256 tokens under a context of 1024 is a choice, but not one to make in silence.
TEST(ModelSession, APoolBelowTheContextIsSaid) {
  ModelOptions needle;
  needle.model = "needle-5m";
  const auto model = open_model(needle, std::nullopt);
  ASSERT_TRUE(model.ok()) << model.error().message;
  LayoutOptions options;
  options.threads = 1;
  options.context = 1024;
  options.page_tokens = 16;
  options.kv_memory = 1'572'864;
  auto c = plan_capacity(*model, options);
  ASSERT_TRUE(c.ok() && c->refusals.empty());
  EXPECT_EQ(c->context_asked, 1024);
  EXPECT_EQ(c->max_context, 256);
  EXPECT_THAT(lowered_context(options, *c),
              AllOf(HasSubstr("--context 1024"), HasSubstr("256 tokens"), HasSubstr("--kv-memory 6291456")));
  // The flag that it names does help.
  options.kv_memory = 6'291'456;
  c = plan_capacity(*model, options);
  EXPECT_EQ(c->max_context, 1024);
  EXPECT_EQ(lowered_context(options, *c), "");
  options.kv_memory = 1'572'864;
  options.context = 0;
  c = plan_capacity(*model, options);
  EXPECT_THAT(lowered_context(options, *c),
              AllOf(HasSubstr("the model's context of 131072"), HasSubstr("256")));
}

}  // namespace
}  // namespace lariat
