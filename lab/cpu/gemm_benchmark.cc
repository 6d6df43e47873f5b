// SPDX-License-Identifier: Apache-2.0
// Whole GEMMs (packing, tiles, a plain store) of a LLaMA block's shapes, in each layout that the
// block has, beside the GEMM kernel's own rate on operands in cache. The machine is seldom alone
// and its clock moves, so that the kernel's rate is taken anew before and after every product, by
// the same clock: `of_in_cache` is the median of the products' ratios. On one thread that clock is
// the thread's processor time, on all it is wall time.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "coda/float16.h"
#include "coda/program_builder.h"
#include "cpu/cpu_backend.h"
#include "cpu/pack.h"
#include "cpu/tile_gemm.h"

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

double now(bool one_thread) {
  if (one_thread) {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// The kernel that a product with this k runs, on operands that stay in each thread's own cache.
class InCache {
 public:
  InCache(DType type, int64_t k, int threads)
      : threads_(threads > 0 ? threads : omp_get_max_threads()) {
    // As a program does: without the processor's products, bf16 is widened when it is packed.
    const GemmLibrary library = resolve(GemmLibrary::best);
    const DType packed = type == DType::bf16 && !multiplies_bf16(library) ? DType::f32 : type;
    depth_ = block_depth(packed, k);
    a_ = random_matrix(packed, kRows * depth_);
    b_ = random_matrix(packed, kPanelColumns * depth_);
    c_.resize(static_cast<size_t>(threads_));
    for (auto& c : c_) c.resize(kRows * kPanelColumns);
    kernel_ =
        make_tile_kernel(library, packed, kRows, static_cast<int>(depth_), kPanelColumns, true);
  }

  // flops a second of all threads together, over about this many flops each.
  double rate(double flops) {
    const double flops_of_call = 2.0 * kRows * kPanelColumns * static_cast<double>(depth_);
    const auto calls = std::max<int64_t>(8, static_cast<int64_t>(flops / flops_of_call));
    const double start = now(threads_ == 1);
#pragma omp parallel num_threads(threads_)
    {
      float* c = c_[static_cast<size_t>(omp_get_thread_num())].data();
      for (int64_t i = 0; i < calls; ++i) kernel_(a_.data(), b_.data(), c);
    }
    return static_cast<double>(calls * threads_) * flops_of_call / (now(threads_ == 1) - start);
  }

 private:
  static constexpr int kRows = 128;
  int threads_;
  int64_t depth_ = 0;
  std::vector<char> a_;
  std::vector<char> b_;
  std::vector<std::vector<float>> c_;
  TileKernel kernel_;
};

void product(benchmark::State& state, DType type, const std::string& layout, int64_t m, int64_t n,
             int64_t k, int threads) {
  const std::string suffix = ":" + std::string(name_of(type));
  ProgramBuilder p("gemm");
  p.store("c" + suffix, p.gemm((layout[0] == 't' ? "a[K, M]" : "a[M, K]") + suffix,
                               (layout[1] == 't' ? "b[N, K]" : "b[K, N]") + suffix, layout));
  const Program program = p.build();
  const DimValues sizes = {{"M", m}, {"N", n}, {"K", k}};
  std::vector<AlignedBuffer> memory;
  std::vector<TensorView> tensors;
  for (const TensorDecl& decl : program.tensors) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    const std::vector<char> values = random_matrix(type, shape.rows * shape.cols);
    memory.emplace_back(values.size());
    std::copy(values.begin(), values.end(), memory.back().as<char>());
    tensors.push_back(dense_view(memory.back().data(), type, shape.rows, shape.cols));
  }
  const auto backend = make_cpu_backend({.threads = threads});
  const auto kernel = backend->prepare(program, sizes);
  InCache in_cache(type, k, threads);
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const double sample = std::max(1e8, 0.05 * flops);  // a millisecond, or a twentieth
  kernel->run(tensors);
  std::vector<double> rates;
  std::vector<double> yardsticks{in_cache.rate(sample)};
  std::vector<double> ratios;
  for (auto _ : state) {
    const double start = now(threads == 1);
    kernel->run(tensors);
    const double seconds = now(threads == 1) - start;
    yardsticks.push_back(in_cache.rate(sample));
    rates.push_back(flops / seconds);
    ratios.push_back(rates.back() * 2 / (yardsticks.end()[-1] + yardsticks.end()[-2]));
    state.SetIterationTime(seconds);
  }
  state.counters["GFLOP/s"] = median(rates) / 1e9;
  state.counters["in_cache"] = median(yardsticks) / 1e9;
  state.counters["of_in_cache"] = median(ratios);
}

void register_all() {
  for (DType type : {DType::f32, DType::bf16}) {
    const std::string name(name_of(type));
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
          const double flops = 2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k);
          benchmark::RegisterBenchmark(full.c_str(), product, type, p.layout, p.m, p.n, p.k,
                                       threads)
              ->UseManualTime()
              ->Iterations(std::clamp<int64_t>(static_cast<int64_t>(5e10 / flops), 3, 31))
              ->Unit(benchmark::kMillisecond);
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
