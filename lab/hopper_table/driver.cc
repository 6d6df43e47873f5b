// SPDX-License-Identifier: Apache-2.0
#include "lab/hopper_table/driver.h"

#include "gpu/launch/tensor_map.h"

namespace coda::hopper_table {
namespace {

using gpu::check_driver;
using gpu::driver;
namespace cuda = gpu::cuda;

cuda::LaunchConfig launch_config(const LaunchShape& shape, Stream stream,
                                 cuda::LaunchAttribute& cluster) {
  cluster = {
      .id = cuda::kClusterDimension, .padding = 0, .cluster = {shape.cluster, 1, 1}, .rest = {}};
  return {.grid = {shape.grid, 1, 1},
          .block = {shape.block, 1, 1},
          .shared_bytes = shape.shared_bytes,
          .stream = stream,
          .attributes = &cluster,
          .attribute_count = 1};
}

}  // namespace

DevicePointer Device::allocate(std::size_t bytes) const {
  DevicePointer pointer = 0;
  check_driver(driver().mem_alloc(&pointer, bytes), "allocating memory");
  return pointer;
}

void Device::free(DevicePointer pointer) const {
  check_driver(driver().mem_free(pointer), "freeing memory");
}

void Device::fill_bytes(DevicePointer pointer, unsigned char value, std::size_t bytes) const {
  check_driver(driver().memset_d8_async(pointer, value, bytes, stream()), "filling memory");
}

void Device::to_host(void* host, DevicePointer device, std::size_t bytes) const {
  check_driver(driver().memcpy_dtoh_async(host, device, bytes, stream()), "copying to the host");
  synchronize();
}

Function Device::load_kernel(const std::vector<char>& cubin, const char* name,
                             unsigned shared_bytes) const {
  void* module = nullptr;
  check_driver(driver().module_load_data(&module, cubin.data()), "loading a kernel");
  Function function = nullptr;
  check_driver(driver().module_get_function(&function, module, name), "finding a kernel");
  if (shared_bytes != 0) {
    check_driver(driver().func_set_attribute(function, cuda::kMaxDynamicShared,
                                             static_cast<int>(shared_bytes)),
                 "asking for shared memory");
  }
  return function;
}

KernelResources Device::resources(Function function) const {
  KernelResources result;
  const char* what = "asking for a kernel's resources";
  check_driver(driver().func_get_attribute(&result.registers, cuda::kRegisters, function), what);
  check_driver(driver().func_get_attribute(&result.local_bytes, cuda::kLocalBytes, function), what);
  return result;
}

int Device::max_active_clusters(Function function, const LaunchShape& shape) const {
  cuda::LaunchAttribute cluster;
  const cuda::LaunchConfig config = launch_config(shape, stream(), cluster);
  int count = 0;
  check_driver(driver().occupancy_max_active_clusters(&count, function, &config),
               "asking how many clusters run at once");
  return count;
}

void Device::launch(Function function, const LaunchShape& shape, void** arguments) const {
  cuda::LaunchAttribute cluster;
  const cuda::LaunchConfig config = launch_config(shape, stream(), cluster);
  check_driver(driver().launch_kernel_ex(&config, function, arguments, nullptr),
               "launching a kernel");
}

void Device::synchronize() const {
  check_driver(driver().stream_synchronize(stream()), "waiting for the GPU");
}

device::TensorMap Device::tensor_map(DevicePointer base, bool fp16, std::uint64_t rows,
                                     std::uint64_t columns, std::uint64_t pitch_elements,
                                     std::uint32_t box_rows, std::uint32_t box_columns) const {
  return gpu::encode_tensor_map({.address = base,
                                 .dtype = fp16 ? DType::f16 : DType::bf16,
                                 .rows = static_cast<std::int64_t>(rows),
                                 .columns = static_cast<std::int64_t>(columns),
                                 .row_stride = static_cast<std::int64_t>(pitch_elements)},
                                box_rows, box_columns, "a matrix");
}

}  // namespace coda::hopper_table
