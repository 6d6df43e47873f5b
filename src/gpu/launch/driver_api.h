// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver API that the backend and its benchmarks use. It is declared here and
// opened at run time, so that building needs no CUDA installation. Names are the driver's without
// "cu". Layouts and values are fixed by the driver's ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/types.cuh"

namespace coda::gpu {

using DeviceAddress = uint64_t;
using DriverHandle = void*;  // a context, module, function, stream, event, graph

namespace cuda {

inline constexpr int kClusterDimension = 4;  // launch attributes
inline constexpr int kDependentLaunch = 6;
inline constexpr int kMaxDynamicShared = 8;  // function attributes
inline constexpr int kLocalBytes = 3;
inline constexpr int kRegisters = 4;
inline constexpr int kMultiprocessors = 16;  // device attributes
inline constexpr int kCapabilityMajor = 75;
inline constexpr int kCapabilityMinor = 76;
inline constexpr int kSharedBytesOfBlock = 97;  // opted in
inline constexpr int kMemoryPools = 115;
inline constexpr unsigned kDeviceMemory = 2;
inline constexpr unsigned kNonBlocking = 1;       // streams
inline constexpr unsigned kSleepingWait = 1 | 2;  // events: no spinning, no timing
inline constexpr unsigned kSleepingWaitTimed = 1;
inline constexpr int kOutOfMemory = 2;  // results
inline constexpr int kNoDevice = 100;
// The oldest driver version that captures dependent launches into graphs.
inline constexpr int kDependentLaunchInGraphs = 12030;

struct LaunchAttribute {
  int id;
  int padding;
  unsigned cluster[3];  // of kDependentLaunch: whether it is allowed, 0, 0
  char rest[64 - 3 * sizeof(unsigned)];
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  DriverHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Copy2D {
  size_t source_x = 0;
  size_t source_y = 0;
  unsigned source_type = kDeviceMemory;
  const void* source_host = nullptr;
  DeviceAddress source = 0;
  DriverHandle source_array = nullptr;
  size_t source_pitch = 0;
  size_t target_x = 0;
  size_t target_y = 0;
  unsigned target_type = kDeviceMemory;
  void* target_host = nullptr;
  DeviceAddress target = 0;
  DriverHandle target_array = nullptr;
  size_t target_pitch = 0;
  size_t width_bytes = 0;
  size_t height = 0;
};
static_assert(sizeof(Copy2D) == 128);

}  // namespace cuda

struct DriverApi {
  // Throws Error where there is no driver.
  DriverApi();

  int version = 0;  // 1000 * major + 10 * minor of the newest CUDA version that the driver supports

  int (*init)(unsigned);
  int (*driver_get_version)(int*);
  int (*get_error_name)(int, const char**);
  int (*get_error_string)(int, const char**);
  int (*device_get_count)(int*);
  int (*device_get)(int*, int);
  int (*device_get_name)(char*, int, int);
  int (*device_get_attribute)(int*, int, int);
  int (*device_primary_ctx_retain)(DriverHandle*, int);
  int (*device_primary_ctx_release)(int);
  int (*ctx_get_current)(DriverHandle*);
  int (*ctx_get_device)(int*);
  int (*ctx_push_current)(DriverHandle);
  int (*ctx_pop_current)(DriverHandle*);
  int (*ctx_synchronize)();
  int (*module_load_data)(DriverHandle*, const void*);
  int (*module_unload)(DriverHandle);
  int (*module_get_function)(DriverHandle*, DriverHandle, const char*);
  int (*func_get_attribute)(int*, int, DriverHandle);
  int (*func_set_attribute)(DriverHandle, int, int);
  int (*occupancy_max_active_clusters)(int*, DriverHandle, const cuda::LaunchConfig*);
  int (*launch_kernel_ex)(const cuda::LaunchConfig*, DriverHandle, void**, void**);
  int (*stream_create)(DriverHandle*, unsigned);
  int (*stream_create_with_priority)(DriverHandle*, unsigned, int);
  int (*stream_destroy)(DriverHandle);
  int (*stream_synchronize)(DriverHandle);
  int (*stream_wait_event)(DriverHandle, DriverHandle, unsigned);
  int (*stream_is_capturing)(DriverHandle, int*);
  int (*stream_begin_capture)(DriverHandle, int);
  int (*stream_end_capture)(DriverHandle, DriverHandle*);
  int (*graph_instantiate)(DriverHandle*, DriverHandle, unsigned long long);
  int (*graph_launch)(DriverHandle, DriverHandle);
  int (*graph_destroy)(DriverHandle);
  int (*graph_exec_destroy)(DriverHandle);
  int (*event_create)(DriverHandle*, unsigned);
  int (*event_destroy)(DriverHandle);
  int (*event_record)(DriverHandle, DriverHandle);
  int (*event_synchronize)(DriverHandle);
  int (*event_elapsed_time)(float*, DriverHandle, DriverHandle);
  int (*mem_alloc)(DeviceAddress*, size_t);
  int (*mem_free)(DeviceAddress);
  int (*mem_alloc_async)(DeviceAddress*, size_t, DriverHandle);
  int (*mem_free_async)(DeviceAddress, DriverHandle);
  int (*mem_host_alloc)(void**, size_t, unsigned);
  int (*mem_free_host)(void*);
  int (*mem_get_info)(size_t*, size_t*);
  int (*memset_d8_async)(DeviceAddress, unsigned char, size_t, DriverHandle);
  int (*memset_d2d8_async)(DeviceAddress, size_t, unsigned char, size_t, size_t, DriverHandle);
  int (*memcpy_2d_async)(const cuda::Copy2D*, DriverHandle);
  int (*memcpy_dtod_async)(DeviceAddress, DeviceAddress, size_t, DriverHandle);
  int (*memcpy_htod_async)(DeviceAddress, const void*, size_t, DriverHandle);
  int (*memcpy_dtoh_async)(void*, DeviceAddress, size_t, DriverHandle);
  int (*tensor_map_encode_tiled)(device::TensorMap*, int, unsigned, void*, const uint64_t*,
                                 const uint64_t*, const uint32_t*, const uint32_t*, int, int, int,
                                 int);
};

// Opens and initialises the driver at the first call. Throws Error if there is no driver, no GPU,
// or the driver is too old.
const DriverApi& driver();

// "12.4".
std::string cuda_version_text(int version);

// Throws Error unless `result` is 0. The message has `what` was being done, the driver's reason,
// and the remedy.
void check_driver(int result, const std::string& what);
// The same for frequent calls: `what` and `subject` are concatenated only on failure.
void check_driver(int result, const char* what, const std::string& subject);

}  // namespace coda::gpu
