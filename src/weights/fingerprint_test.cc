#include "weights/fingerprint.h"

#include <gtest/gtest.h>

#include "weights/random_source.h"
#include "weights/test_files.h"

namespace lariat {
namespace {

std::array<uint64_t, 2> of_file(const std::vector<test::F32Tensor>& tensors,
                                const std::vector<TensorRequirement>& needs) {
  const test::TempFolder folder;
  folder.write("model.safetensors", test::f32_safetensors(tensors));
  const auto source = open_hf_source(*folder_files(folder.path()));
  EXPECT_TRUE(source.ok());
  return weights_fingerprint(**source, needs);
}

TEST(Fingerprint, TellsWeightsApart) {
  const std::vector<TensorRequirement> needs = {{.name = "a", .shape = {3}}, {.name = "b", .shape = {3}}};
  const auto base = of_file({{"a", {3}, 1}, {"b", {3}, 2}}, needs);
  EXPECT_EQ(base, of_file({{"b", {3}, 2}, {"a", {3}, 1}, {"extra", {1}, 0}},
                          needs));  // place in the file is nothing
  EXPECT_NE(base, of_file({{"a", {3}, 2}, {"b", {3}, 1}}, needs));
  EXPECT_NE(base, of_file({{"a", {1, 3}, 1}, {"b", {3}, 2}}, needs));
  EXPECT_NE(base, of_file({{"a", {3}, 1}}, needs));
}

TEST(Fingerprint, LargeTensorsAreSampledFromFirstToLast) {
  const std::vector<TensorRequirement> needs = {{.name = "w", .shape = {100'003}}};
  const std::string file = test::f32_safetensors({{"w", {100'003}, 1}});
  const auto print = [&](const std::string& bytes) {
    const EmbeddedFile files[] = {{"model.safetensors", std::as_bytes(std::span(bytes))}};
    const auto source = open_hf_source(*embedded_files("toy", files));
    EXPECT_TRUE(source.ok());
    return weights_fingerprint(**source, needs);
  };
  const size_t data = file.size() - 400'012;
  for (const size_t at : {data, data + 2000, file.size() - 1}) {
    std::string other = file;
    other[at] = static_cast<char>(other[at] ^ 1);
    EXPECT_NE(print(file), print(other)) << at - data;
  }
}

TEST(Fingerprint, RandomWeightsBySeed) {
  const std::vector<TensorRequirement> needs = {{.name = "w", .shape = {64, 64}}};
  const auto print = [&](uint64_t seed) {
    return weights_fingerprint(*random_source(needs, {.seed = seed}), needs);
  };
  EXPECT_EQ(print(1), print(1));
  EXPECT_NE(print(1), print(2));
}

}  // namespace
}  // namespace lariat
