// SPDX-License-Identifier: Apache-2.0
// Tensors of more than 2^31 elements, where float64 on the host would take hours: a product and an
// elementwise program, judged on the GPU element by element by plain kernels that share nothing
// with the code they check.
#include <gtest/gtest.h>

#include "coda/program_builder.h"
#include "gpu/lower.h"
#include "on_gpu/device_run.h"
#include "on_gpu/on_gpu.h"

namespace coda::tests {
namespace {

constexpr const char* kJudges = R"cuda(
#include "device/arguments.cuh"
using namespace coda::device;

__device__ float widen(u16 bits) { return __uint_as_float(static_cast<u32>(bits) << 16); }
__device__ u64 first() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ u64 step() { return static_cast<u64>(gridDim.x) * blockDim.x; }

// Multiples of 1/128 in [-1, 1), which bf16 has. Numbers: rows, columns.
extern "C" __global__ void fill(const __grid_constant__ KernelArguments<0, 1, 2> a) {
  u16* x = reinterpret_cast<u16*>(a.pointers[0]);
  const u64 count = static_cast<u64>(a.numbers[0]) * a.numbers[1];
  for (u64 i = first(); i < count; i += step()) {
    u64 h = (i + 1) * 0x9e3779b97f4a7c15ull;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    const float value = (static_cast<float>(h >> 56) - 128.0f) / 128.0f;
    x[i] = static_cast<u16>(__float_as_uint(value) >> 16);
  }
}

// Counts the elements of y[M, N] that are not x[M, K] · w[N, K]ᵀ rounded, or differ from z by more
// than z = 2 y allows, which is nothing. Numbers: M, N, K.
extern "C" __global__ void judge(const __grid_constant__ KernelArguments<0, 5, 3> a) {
  const u16* x = reinterpret_cast<const u16*>(a.pointers[0]);
  const u16* w = reinterpret_cast<const u16*>(a.pointers[1]);
  const u16* y = reinterpret_cast<const u16*>(a.pointers[2]);
  const u16* z = reinterpret_cast<const u16*>(a.pointers[3]);
  u32* wrong = reinterpret_cast<u32*>(a.pointers[4]);
  const u64 n = a.numbers[1];
  const u64 k = a.numbers[2];
  for (u64 i = first(); i < n * a.numbers[0]; i += step()) {
    float sum = 0;
    for (u64 j = 0; j < k; ++j) sum += widen(x[i / n * k + j]) * widen(w[i % n * k + j]);
    const float got = widen(y[i]);
    if (!(fabsf(got - sum) <= fabsf(sum) / 256.0f + 1e-5f)) atomicAdd(wrong, 1u);
    if (!(widen(z[i]) == 2.0f * got)) atomicAdd(wrong + 1, 1u);
  }
}
)cuda";

gpu::LaunchedKernel judge(const char* function, std::vector<gpu::KernelTensor> tensors,
                          std::vector<uint32_t> numbers) {
  std::vector<int> pointers;
  for (size_t i = 0; i < tensors.size(); ++i) pointers.push_back(static_cast<int>(i));
  return {gpu(), function, std::move(tensors), [=](std::span<const int64_t>) {
            gpu::KernelLaunch launch;
            launch.function = function;
            launch.source = kJudges;
            launch.pointers = pointers;
            launch.numbers = numbers;
            launch.grid = 132 * 16;
            launch.threads = 256;
            return std::vector<gpu::KernelLaunch>{launch};
          }};
}

using LargeTensors = OnGpu;

TEST_F(LargeTensors, ProductsAndElementwiseProgramsBeyond32BitsOfElements) {
  constexpr int64_t kM = 32768;
  constexpr int64_t kN = 65672;  // ragged; M N = 2^31 + 4 456 448
  constexpr int64_t kK = 72;
  const auto state = gpu();
  const gpu::Context::Scope scope(*state->context);
  std::vector<gpu::DeviceMemory> memory;
  const auto tensor = [&](DType type, int64_t rows, int64_t cols) {
    memory.emplace_back(state->context, static_cast<size_t>(rows * cols * size_of(type)),
                        state->stream, "a large tensor");
    const TensorView view = dense_view(memory.back().data(), type, rows, cols);
    gpu::fill_bytes(view, 0xff, state->stream);
    return view;
  };
  const TensorView x = tensor(DType::bf16, kM, kK);
  const TensorView w = tensor(DType::bf16, kN, kK);
  const TensorView y = tensor(DType::bf16, kM, kN);
  const TensorView z = tensor(DType::bf16, kM, kN);
  const TensorView wrong = tensor(DType::i32, 1, 2);
  gpu::fill_bytes(wrong, 0, state->stream);
  for (const TensorView& input : {x, w}) {
    judge("fill", {{"x", false, true}},
          {static_cast<uint32_t>(input.rows), static_cast<uint32_t>(input.cols)})
        .run(std::vector<TensorView>{input});
  }

  const DimValues sizes{{"M", kM}, {"N", kN}, {"K", kK}};
  const auto run = [&](const Program& program, const std::vector<TensorView>& tensors) {
    gpu::LaunchedKernel(state, program.name, kernel_tensors(program),
                        [&](std::span<const int64_t>) { return gpu::lower(program, sizes, {}); })
        .run(tensors);
  };
  ProgramBuilder product("large_product");
  product.store("y:bf16", product.gemm("x[M, K]:bf16", "w[N, K]:bf16", "nt"));
  run(product.build(), {x, w, y});
  ProgramBuilder twice("large_twice");
  twice.store("z:bf16", twice.load_tile("y[M, N]:bf16") * 2.0);
  run(twice.build(), {y, z});

  judge("judge",
        {{"x", true, false},
         {"w", true, false},
         {"y", true, false},
         {"z", true, false},
         {"wrong", true, true}},
        {static_cast<uint32_t>(kM), static_cast<uint32_t>(kN), static_cast<uint32_t>(kK)})
      .run(std::vector<TensorView>{x, w, y, z, wrong});
  std::vector<int32_t> counts(2);
  gpu::copy_to_host(wrong, dense_view(counts.data(), DType::i32, 1, 2), state->stream);
  gpu::check_driver(gpu::driver().stream_synchronize(state->stream), "judging");
  EXPECT_EQ(counts[0], 0) << "elements of the product";
  EXPECT_EQ(counts[1], 0) << "elements that were doubled";
}

}  // namespace
}  // namespace coda::tests
