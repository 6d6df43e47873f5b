// SPDX-License-Identifier: Apache-2.0
// What the compiler of plans takes on one core: for the LLaMA block that bench/llama_block
// measures, and for training steps of whole models. The time of a layer stays as it is as models
// grow deeper, or something in the compiler is not linear.
#include <benchmark/benchmark.h>

#include "bench/llama_block/block_graph.h"
#include "coda/models.h"

namespace coda::bench {
namespace {

constexpr int64_t kSequence = 1024;

void compile_block(benchmark::State& state, bool backward) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        block_plan(wide_headed(16384, 4096, 11008), DType::bf16, h200_rates(), backward));
  }
}

// Loss and gradients of all parameters.
void compile_training(benchmark::State& state, ModelGraph& model) {
  CompileRequest request;
  request.outputs = {{"loss", model.loss}};
  request.seeds = {{model.loss, model.graph.input("scale", {1, 1})}};
  for (const ModelParameter& p : model.parameters) {
    request.gradients.push_back({p.value, "d_" + p.name, DType::f32, false});
  }
  CompileOptions options;
  options.rates = h200_rates();
  options.storage = DType::bf16;
  options.objective = Objective::speed;
  options.sizes = {{"M", 8 * kSequence}, {"T", kSequence}};
  for (auto _ : state) benchmark::DoNotOptimize(compile(model.graph, request, options));
}

void compile_llama(benchmark::State& state) {
  const LlamaConfig config{.layers = state.range(0),
                           .hidden = 576,
                           .heads = 9,
                           .kv_heads = 3,
                           .head_dim = 64,
                           .mlp = 1536,
                           .vocab = 49152,
                           .rope_scaling = {},
                           .tied = true};
  compile_training(state, *build_model(config, {.storage = DType::bf16, .positions = kSequence}));
}

void compile_gpt2(benchmark::State& state) {
  const Gpt2Config config{
      .layers = state.range(0), .hidden = 768, .heads = 12, .vocab = 50257, .mlp = 3072};
  compile_training(state, *build_model(config, {.storage = DType::bf16, .positions = kSequence}));
}

// To far deeper than any model is.
void depths(benchmark::internal::Benchmark* benchmark) {
  for (int layers : {1, 2, 4, 12, 30, 64, 100, 200, 300}) benchmark->Arg(layers);
}

BENCHMARK_CAPTURE(compile_block, forward, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile_block, forward_backward, true)->Unit(benchmark::kMillisecond);
BENCHMARK(compile_llama)->Apply(depths)->Unit(benchmark::kMillisecond);
BENCHMARK(compile_gpt2)->Apply(depths)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace coda::bench

BENCHMARK_MAIN();
