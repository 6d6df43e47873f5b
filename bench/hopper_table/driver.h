// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver API that a measurement needs, declared here and opened at run time,
// so that no CUDA installation is needed to build. Every call is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/types.cuh"

namespace coda::hopper_table {

using DevicePointer = std::uint64_t;
using Function = void*;
using Stream = void*;
using Event = void*;

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
  Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  int driver_version() const { return driver_version_; }
  int multiprocessors() const { return multiprocessors_; }
  Stream stream() const { return stream_; }

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

  Event make_event() const;
  void record(Event event) const;
  float elapsed_ms(Event start, Event stop) const;  // waits for `stop`

  // A 2-D row-major tensor of 16-bit elements, loaded or stored in boxes of one 128-byte swizzle
  // row.
  device::TensorMap tensor_map(DevicePointer base, bool fp16, std::uint64_t rows,
                               std::uint64_t columns, std::uint64_t pitch_elements,
                               std::uint32_t box_rows, std::uint32_t box_columns) const;

 private:
  void check(int result, const char* what) const;

  std::string name_;
  int driver_version_ = 0;
  int multiprocessors_ = 0;
  Stream stream_ = nullptr;
};

}  // namespace coda::hopper_table
