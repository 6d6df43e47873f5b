// SPDX-License-Identifier: Apache-2.0
// The GEMM kernel's own rate on operands in cache, and whole GEMMs (packing, tiles, a plain store)
// of a LLaMA block's shapes beside it, in each layout that the block has: the ratio is what packing
// and memory cost. Rates are of processor time on one thread, and of wall time on all.
#include <benchmark/benchmark.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "coda/program_builder.h"
#include "cpu/cpu_backend.h"
#include "cpu/pack.h"

namespace coda::cpu {
namespace {

std::vector<char> random_matrix(DType type, int64_t count) {
  std::mt19937 random(1);
  std::vector<char> bytes(count * size_of(type));
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000;
    if (type == DType::f32) reinterpret_cast<float*>(bytes.data())[i] = value;
    if (type == DType::bf16) {
      reinterpret_cast<uint16_t*>(bytes.data())[i] = bf16_from_float(value);
    }
  }
  return bytes;
}

void set_rate(benchmark::State& state, double flops) {
  state.counters["flops"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void in_cache(benchmark::State& state, DType type) {
  const GemmLibrary library = resolve(GemmLibrary::best);
  if (type == DType::bf16 && !multiplies_bf16(library)) {
    return state.SkipWithError("bf16 is widened on this processor");
  }
  constexpr int kRows = 128;
  const int depth = static_cast<int>(block_depth(type, 576));
  const std::vector<char> a = random_matrix(type, kRows * depth);
  const std::vector<char> b = random_matrix(type, kPanelColumns * depth);
  std::vector<float> c(kRows * kPanelColumns);
  const TileKernel kernel = make_tile_kernel(library, type, kRows, depth, kPanelColumns, true);
  for (auto _ : state) kernel(a.data(), b.data(), c.data());
  set_rate(state, 2.0 * kRows * kPanelColumns * depth);
}

void whole(benchmark::State& state, DType type, const std::string& layout, int64_t m, int64_t n,
           int64_t k, int threads) {
  const std::string suffix = ":" + std::string(name_of(type));
  ProgramBuilder p("gemm");
  p.store("c" + suffix, p.gemm((layout[0] == 't' ? "a[K, M]" : "a[M, K]") + suffix,
                               (layout[1] == 't' ? "b[N, K]" : "b[K, N]") + suffix, layout));
  const Program program = p.build();
  const DimValues sizes = {{"M", m}, {"N", n}, {"K", k}};
  std::vector<std::vector<char>> memory;
  std::vector<TensorView> tensors;
  for (const TensorDecl& decl : program.tensors) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    memory.push_back(random_matrix(type, shape.rows * shape.cols));
    tensors.push_back(dense_view(memory.back().data(), type, shape.rows, shape.cols));
  }
  const auto backend = make_cpu_backend({.threads = threads});
  const auto kernel = backend->prepare(program, sizes);
  for (auto _ : state) kernel->run(tensors);
  set_rate(state, 2.0 * m * n * k);
}

void register_all() {
  for (DType type : {DType::f32, DType::bf16}) {
    const std::string name(name_of(type));
    benchmark::RegisterBenchmark(("in_cache/" + name).c_str(), in_cache, type);
    for (const auto& [m, d, i] : std::vector<std::array<int64_t, 3>>{
             {2048, 576, 1536}, {4096, 1024, 2816}, {2048, 2048, 5632}}) {
      struct Product {
        std::string layout;
        int64_t m, n, k;
      };
      // Gate and up, down, out-projection; their data gradients; their weight gradients.
      const std::vector<Product> products = {{"nt", m, 2 * i, d}, {"nt", m, d, i}, {"nt", m, d, d},
                                             {"nn", m, d, 2 * i}, {"nn", m, i, d}, {"nn", m, d, d},
                                             {"tn", 2 * i, d, m}, {"tn", d, i, m}, {"tn", d, d, m}};
      for (const Product& p : products) {
        for (int threads : {1, 0}) {
          const std::string full = "gemm/" + name + "/" + p.layout + "/" + std::to_string(p.m) +
                                   "x" + std::to_string(p.n) + "x" + std::to_string(p.k) +
                                   (threads == 1 ? "/one" : "/all");
          auto* b = benchmark::RegisterBenchmark(full.c_str(), whole, type, p.layout, p.m, p.n, p.k,
                                                 threads);
          if (threads == 0) b->UseRealTime();
          b->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

}  // namespace
}  // namespace coda::cpu

int main(int argc, char** argv) {
  coda::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
