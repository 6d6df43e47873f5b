// SPDX-License-Identifier: Apache-2.0
// Attention's rate, forward and backward, at shapes of small language models, in the flops that the
// causal mask leaves: 4 and 10 for each seen key, head and dimension.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "coda/float16.h"
#include "cpu/opaque.h"

namespace coda {
namespace {

struct Tensor {
  Tensor(int64_t rows, int64_t cols, DType dtype, uint32_t seed)
      : bytes(static_cast<size_t>(rows * cols * size_of(dtype))),
        view(dense_view(bytes.data(), dtype, rows, cols)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * cols; ++i) {
      if (dtype == DType::bf16)
        static_cast<uint16_t*>(view.data)[i] = bf16_from_float(normal(random));
      else
        static_cast<float*>(view.data)[i] = normal(random);
    }
  }
  std::vector<std::byte> bytes;
  TensorView view;
};

// Arguments: tokens in all, tokens of a sequence, heads, key-value heads, head size, bf16, threads,
// backward.
void attention(benchmark::State& state) {
  const int64_t rows = state.range(0), tokens = state.range(1), heads = state.range(2),
                kv_heads = state.range(3), dim = state.range(4);
  const DType dtype = state.range(5) != 0 ? DType::bf16 : DType::f32;
  const int threads = static_cast<int>(state.range(6));
  const bool backward = state.range(7) != 0;
  OpaqueCall call;
  call.attributes = {{"heads", heads},
                     {"kv_heads", kv_heads},
                     {"head_dim", dim},
                     {"scale", 1 / std::sqrt(dim)},
                     {"causal", 1}};
  call.sizes = {{"sequence", Dim(tokens)}};
  Tensor q(rows, heads * dim, dtype, 1), k(rows, kv_heads * dim, dtype, 2),
      v(rows, kv_heads * dim, dtype, 3), y(rows, heads * dim, dtype, 4),
      lse(rows, heads, DType::f32, 5), dy(rows, heads * dim, dtype, 6),
      dq(rows, heads * dim, dtype, 7), dk(rows, kv_heads * dim, dtype, 8),
      dv(rows, kv_heads * dim, dtype, 9);
  auto prepare = [&](const char* function, std::vector<std::string> inputs,
                     std::vector<std::string> outputs, const std::vector<TensorView>& views) {
    call.function = function, call.inputs = std::move(inputs), call.outputs = std::move(outputs);
    std::vector<TensorDecl> decls;
    for (const TensorView& view : views)
      decls.push_back({"operand", Shape{view.rows, view.cols}, view.dtype});
    return cpu::prepare_opaque(call, decls, {}, threads);
  };
  const std::vector<TensorView> forward_views = {q.view, k.view, v.view, y.view, lse.view};
  const std::vector<TensorView> backward_views = {q.view,  k.view,  v.view,  y.view, lse.view,
                                                  dy.view, dq.view, dk.view, dv.view};
  auto forward = prepare("attention", {"q", "k", "v"}, {"y", "lse"}, forward_views);
  auto gradient = prepare("attention_backward", {"q", "k", "v", "y", "lse", "dy"},
                          {"dq", "dk", "dv"}, backward_views);
  forward->run(forward_views);
  for (auto _ : state) {
    if (backward)
      gradient->run(backward_views);
    else
      forward->run(forward_views);
  }
  const double seen = static_cast<double>(rows) * (tokens + 1) / 2;
  state.counters["flops"] = benchmark::Counter((backward ? 10 : 4) * seen * heads * dim,
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(attention)
    ->ArgNames({"M", "T", "H", "Hkv", "Dh", "bf16", "threads", "backward"})
    ->ArgsProduct({{2048}, {256, 512, 1024}, {9}, {3}, {64}, {0, 1}, {1, 2}, {0, 1}})
    ->Args({2048, 2048, 16, 4, 128, 0, 2, 0})
    ->Args({2048, 2048, 16, 4, 128, 0, 2, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace coda

BENCHMARK_MAIN();
