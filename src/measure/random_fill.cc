// SPDX-License-Identifier: Apache-2.0
#include "measure/random_fill.h"

#include <string>

#include "coda/error.h"

namespace coda::measure {
namespace {

constexpr const char* kFillSource = R"cuda(#include "device/element.cuh"

using namespace coda::device;

__device__ u64 mix(u64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// type: 0 f32, 1 bf16, 2 f16, 3 i32, 4 e4m3, 5 e5m2, 6 u8, of which a mask is made.
extern "C" __global__ void fill_random(u64 data, u64 rows, u64 columns, u64 stride, u64 seed,
                                       float scale, u32 limit, u32 type) {
  const u64 count = rows * columns;
  const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
  for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const u64 bits = mix(i ^ mix(seed));
    const u64 at = i / columns * stride + i % columns;
    if (type == 3) {
      reinterpret_cast<u32*>(data)[at] = static_cast<u32>(bits >> 32) % limit;
      continue;
    }
    if (type == 6) {
      reinterpret_cast<u8*>(data)[at] = static_cast<u8>(bits >> 63);
      continue;
    }
    const float u = (static_cast<float>(static_cast<u32>(bits) >> 8) + 0.5f) * (1.0f / 16777216.0f);
    const float v = static_cast<float>(static_cast<u32>(bits >> 40)) * (1.0f / 16777216.0f);
    const float x = scale * sqrtf(-2.0f * logf(u)) * cosf(6.28318530718f * v);
    if (type == 0) store_element<Element::f32>(data, at, x);
    if (type == 1) store_element<Element::bf16>(data, at, x);
    if (type == 2) store_element<Element::f16>(data, at, x);
    if (type == 4) store_element<Element::e4m3>(data, at, x);
    if (type == 5) store_element<Element::e5m2>(data, at, x);
  }
}
)cuda";

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocks = 1056;

unsigned number_of(DType type) {
  switch (type) {
    case DType::f32: return 0;
    case DType::bf16: return 1;
    case DType::f16: return 2;
    case DType::i32: return 3;
    case DType::e4m3: return 4;
    case DType::e5m2: return 5;
    case DType::u8: return 6;
    default: throw Error("random tensors are not " + std::string(name_of(type)));
  }
}

}  // namespace

void fill_random(gpu::GpuState& state, const TensorView& view, uint64_t seed, float scale,
                 uint32_t limit) {
  gpu::KernelLaunch launch;
  launch.function = "fill_random";
  launch.source = kFillSource;
  const gpu::DriverHandle function = state.kernels->load("fill_random", launch);
  uint64_t data = gpu::address_of(view.data);
  uint64_t rows = static_cast<uint64_t>(view.rows);
  uint64_t columns = static_cast<uint64_t>(view.cols);
  uint64_t stride = static_cast<uint64_t>(view.row_stride);
  uint32_t type = number_of(view.dtype);
  void* arguments[] = {&data, &rows, &columns, &stride, &seed, &scale, &limit, &type};
  const gpu::cuda::LaunchConfig config = {.grid = {kBlocks, 1, 1},
                                          .block = {kThreads, 1, 1},
                                          .shared_bytes = 0,
                                          .stream = state.stream,
                                          .attributes = nullptr,
                                          .attribute_count = 0};
  gpu::check_driver(gpu::driver().launch_kernel_ex(&config, function, arguments, nullptr),
                    "filling a tensor with random numbers");
}

}  // namespace coda::measure
