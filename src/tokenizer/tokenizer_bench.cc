// Encoding on the request path: a long prompt, one long run, and loading.
// usage: tokenizer_tokenizer_bench [--benchmark_..] FOLDER (of a tokenizer.json)
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace lariat {
namespace {

std::unique_ptr<const Tokenizer> tokenizer;

void report(benchmark::State& state, const std::string& text) {
  size_t tokens = 0;
  for ([[maybe_unused]] auto _ : state) {
    const auto ids = tokenizer->encode(text);
    LARIAT_CHECK(ids.ok());
    tokens = ids->size();
  }
  state.counters["tokens"] = static_cast<double>(tokens);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void BM_Prose(benchmark::State& state) {
  std::string text;
  uint32_t x = 1;
  const char* words[] = {"The",    " pass", " key",   " for",   " misty", " wren", " is",
                         " 48213", ".\n",   " naïve", " don't", "(x)",    " 東京", " Straße"};
  while (text.size() < 600'000) text += words[((x = x * 1664525u + 1013904223u) >> 16) % 14];
  report(state, text);
}
BENCHMARK(BM_Prose)->Unit(benchmark::kMillisecond);

void BM_OneRun(benchmark::State& state) {
  report(state, std::string(static_cast<size_t>(state.range(0)), 'a'));
}
BENCHMARK(BM_OneRun)->Arg(100'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void BM_Spaces(benchmark::State& state) {
  report(state, std::string(200'000, ' '));
}
BENCHMARK(BM_Spaces)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lariat

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s [--benchmark_..] FOLDER\n", argv[0]);
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  auto loaded = lariat::Tokenizer::load(argv[1]);
  LARIAT_CHECK(loaded.ok(), "{}", loaded.error().message);
  lariat::tokenizer = *std::move(loaded);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::printf("loaded in %.0f ms\n", took.count());
  benchmark::RunSpecifiedBenchmarks();
  lariat::tokenizer.reset();
}
