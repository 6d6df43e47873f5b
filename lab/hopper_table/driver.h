// SPDX-License-Identifier: Apache-2.0
// A GPU as the table's code sees it: the context that is the thread's, one stream, matrices of
// 16-bit elements. The driver is the library's; every call is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/types.cuh"
#include "gpu/launch/launched_kernel.h"

namespace coda::hopper_table {

using DevicePointer = gpu::DeviceAddress;
using Function = gpu::DriverHandle;
using Stream = gpu::DriverHandle;

struct LaunchShape {
  unsigned grid = 1;
  unsigned block = 1;
  unsigned cluster = 1;
  unsigned shared_bytes = 0;
};

struct KernelResources {
  int registers = 0;
  int local_bytes = 0;
};

class Device {
 public:
  explicit Device(std::shared_ptr<gpu::GpuState> state) : state_(std::move(state)) {}

  int multiprocessors() const { return state_->context->info().multiprocessors; }
  Stream stream() const { return state_->stream; }

  DevicePointer allocate(std::size_t bytes) const;
  void free(DevicePointer pointer) const;
  void fill_bytes(DevicePointer pointer, unsigned char value, std::size_t bytes) const;
  void to_host(void* host, DevicePointer device, std::size_t bytes) const;

  Function load_kernel(const std::vector<char>& cubin, const char* name,
                       unsigned shared_bytes) const;
  KernelResources resources(Function function) const;
  int max_active_clusters(Function function, const LaunchShape& shape) const;
  void launch(Function function, const LaunchShape& shape, void** arguments) const;
  void synchronize() const;

  // A 2-D row-major tensor of 16-bit elements, loaded or stored in boxes of one 128-byte swizzle
  // row.
  device::TensorMap tensor_map(DevicePointer base, bool fp16, std::uint64_t rows,
                               std::uint64_t columns, std::uint64_t pitch_elements,
                               std::uint32_t box_rows, std::uint32_t box_columns) const;

 private:
  std::shared_ptr<gpu::GpuState> state_;
};

}  // namespace coda::hopper_table
