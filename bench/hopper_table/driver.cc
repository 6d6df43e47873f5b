// SPDX-License-Identifier: Apache-2.0
#include "bench/hopper_table/driver.h"

#include <stdexcept>

#include "hopper/dynamic_library.h"

namespace coda::hopper_table {
namespace {

// Layouts and values fixed by the driver's ABI.
struct LaunchAttribute {
  int id;
  int padding;
  unsigned cluster[3];
  char rest[64 - 3 * sizeof(unsigned)];
};
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchAttribute) == 72);

constexpr int kClusterDimension = 4;
constexpr int kMaxDynamicShared = 8;
constexpr int kLocalSizeBytes = 3;
constexpr int kNumRegs = 4;
constexpr int kMultiprocessorCount = 16;
constexpr int kFloat16 = 6;
constexpr int kBfloat16 = 9;
constexpr int kSwizzle128 = 3;
// Wider promotion reads lines that the neighbour SM asks for anyway: measured, a tenth more traffic
// between SMs and L2.
constexpr int kPromoteL2To128 = 2;

struct Api {
  int (*init)(unsigned);
  int (*driver_version)(int*);
  int (*device_get)(int*, int);
  int (*device_name)(char*, int, int);
  int (*device_attribute)(int*, int, int);
  int (*primary_context)(void**, int);
  int (*set_context)(void*);
  int (*error_string)(int, const char**);
  int (*alloc)(DevicePointer*, std::size_t);
  int (*free)(DevicePointer);
  int (*memset8)(DevicePointer, unsigned char, std::size_t, Stream);
  int (*copy_to_host)(void*, DevicePointer, std::size_t);
  int (*module_load)(void**, const void*);
  int (*module_function)(Function*, void*, const char*);
  int (*set_function_attribute)(Function, int, int);
  int (*get_function_attribute)(int*, int, Function);
  int (*max_clusters)(int*, Function, const LaunchConfig*);
  int (*launch)(const LaunchConfig*, Function, void**, void**);
  int (*stream_create)(Stream*, unsigned);
  int (*stream_synchronize)(Stream);
  int (*event_create)(Event*, unsigned);
  int (*event_record)(Event, Stream);
  int (*event_synchronize)(Event);
  int (*event_elapsed)(float*, Event, Event);
  int (*encode_tiled)(device::TensorMap*, int, unsigned, void*, const std::uint64_t*,
                      const std::uint64_t*, const std::uint32_t*, const std::uint32_t*, int, int,
                      int, int);

  Api() {
    const hopper::DynamicLibrary cuda(hopper::driver_library());
    cuda.load(init, "cuInit");
    cuda.load(driver_version, "cuDriverGetVersion");
    cuda.load(device_get, "cuDeviceGet");
    cuda.load(device_name, "cuDeviceGetName");
    cuda.load(device_attribute, "cuDeviceGetAttribute");
    cuda.load(primary_context, "cuDevicePrimaryCtxRetain");
    cuda.load(set_context, "cuCtxSetCurrent");
    cuda.load(error_string, "cuGetErrorString");
    cuda.load(alloc, "cuMemAlloc_v2");
    cuda.load(free, "cuMemFree_v2");
    cuda.load(memset8, "cuMemsetD8Async");
    cuda.load(copy_to_host, "cuMemcpyDtoH_v2");
    cuda.load(module_load, "cuModuleLoadData");
    cuda.load(module_function, "cuModuleGetFunction");
    cuda.load(set_function_attribute, "cuFuncSetAttribute");
    cuda.load(get_function_attribute, "cuFuncGetAttribute");
    cuda.load(max_clusters, "cuOccupancyMaxActiveClusters");
    cuda.load(launch, "cuLaunchKernelEx");
    cuda.load(stream_create, "cuStreamCreate");
    cuda.load(stream_synchronize, "cuStreamSynchronize");
    cuda.load(event_create, "cuEventCreate");
    cuda.load(event_record, "cuEventRecord");
    cuda.load(event_synchronize, "cuEventSynchronize");
    cuda.load(event_elapsed, "cuEventElapsedTime");
    cuda.load(encode_tiled, "cuTensorMapEncodeTiled");
  }
};

const Api& api() {
  static const Api instance;
  return instance;
}

LaunchConfig launch_config(const LaunchShape& shape, Stream stream, LaunchAttribute& cluster) {
  cluster = {.id = kClusterDimension, .padding = 0, .cluster = {shape.cluster, 1, 1}, .rest = {}};
  return {.grid = {shape.grid, 1, 1},
          .block = {shape.block, 1, 1},
          .shared_bytes = shape.shared_bytes,
          .stream = stream,
          .attributes = &cluster,
          .attribute_count = 1};
}

}  // namespace

void Device::check(int result, const char* what) const {
  if (result == 0) return;
  const char* text = "unknown error";
  api().error_string(result, &text);
  throw std::runtime_error(std::string(what) + ": " + text + " (" + std::to_string(result) + ")");
}

Device::Device() {
  check(api().init(0), "cuInit");
  int device = 0;
  check(api().device_get(&device, 0), "cuDeviceGet");
  char name[128] = {};
  check(api().device_name(name, sizeof name, device), "cuDeviceGetName");
  name_ = name;
  check(api().driver_version(&driver_version_), "cuDriverGetVersion");
  check(api().device_attribute(&multiprocessors_, kMultiprocessorCount, device),
        "cuDeviceGetAttribute");
  void* context = nullptr;
  check(api().primary_context(&context, device), "cuDevicePrimaryCtxRetain");
  check(api().set_context(context), "cuCtxSetCurrent");
  check(api().stream_create(&stream_, 0), "cuStreamCreate");
}

DevicePointer Device::allocate(std::size_t bytes) const {
  DevicePointer pointer = 0;
  check(api().alloc(&pointer, bytes), "cuMemAlloc");
  return pointer;
}

void Device::free(DevicePointer pointer) const { check(api().free(pointer), "cuMemFree"); }

void Device::fill_bytes(DevicePointer pointer, unsigned char value, std::size_t bytes) const {
  check(api().memset8(pointer, value, bytes, stream_), "cuMemsetD8Async");
}

void Device::to_host(void* host, DevicePointer device, std::size_t bytes) const {
  synchronize();
  check(api().copy_to_host(host, device, bytes), "cuMemcpyDtoH");
}

Function Device::load_kernel(const std::vector<char>& cubin, const char* name,
                             unsigned shared_bytes) const {
  void* module = nullptr;
  check(api().module_load(&module, cubin.data()), "cuModuleLoadData");
  Function function = nullptr;
  check(api().module_function(&function, module, name), "cuModuleGetFunction");
  if (shared_bytes != 0) {
    check(api().set_function_attribute(function, kMaxDynamicShared, static_cast<int>(shared_bytes)),
          "cuFuncSetAttribute");
  }
  return function;
}

KernelResources Device::resources(Function function) const {
  KernelResources result;
  check(api().get_function_attribute(&result.registers, kNumRegs, function), "cuFuncGetAttribute");
  check(api().get_function_attribute(&result.local_bytes, kLocalSizeBytes, function),
        "cuFuncGetAttribute");
  return result;
}

int Device::max_active_clusters(Function function, const LaunchShape& shape) const {
  LaunchAttribute cluster;
  const LaunchConfig config = launch_config(shape, stream_, cluster);
  int count = 0;
  check(api().max_clusters(&count, function, &config), "cuOccupancyMaxActiveClusters");
  return count;
}

void Device::launch(Function function, const LaunchShape& shape, void** arguments) const {
  LaunchAttribute cluster;
  const LaunchConfig config = launch_config(shape, stream_, cluster);
  check(api().launch(&config, function, arguments, nullptr), "cuLaunchKernelEx");
}

void Device::synchronize() const { check(api().stream_synchronize(stream_), "synchronize"); }

Event Device::make_event() const {
  Event event = nullptr;
  check(api().event_create(&event, 0), "cuEventCreate");
  return event;
}

void Device::record(Event event) const { check(api().event_record(event, stream_), "record"); }

float Device::elapsed_ms(Event start, Event stop) const {
  float ms = 0;
  check(api().event_synchronize(stop), "cuEventSynchronize");
  check(api().event_elapsed(&ms, start, stop), "cuEventElapsedTime");
  return ms;
}

device::TensorMap Device::tensor_map(DevicePointer base, bool fp16, std::uint64_t rows,
                                     std::uint64_t columns, std::uint64_t pitch_elements,
                                     std::uint32_t box_rows, std::uint32_t box_columns) const {
  device::TensorMap map;
  const std::uint64_t sizes[2] = {columns, rows};
  const std::uint64_t pitch_bytes[1] = {pitch_elements * 2};
  const std::uint32_t box[2] = {box_columns, box_rows};
  const std::uint32_t element_strides[2] = {1, 1};
  check(
      // A device address is a number to the driver's other calls.
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      api().encode_tiled(&map, fp16 ? kFloat16 : kBfloat16, 2, reinterpret_cast<void*>(base), sizes,
                         pitch_bytes, box, element_strides, 0, kSwizzle128, kPromoteL2To128, 0),
      "cuTensorMapEncodeTiled");
  return map;
}

}  // namespace coda::hopper_table
