// SPDX-License-Identifier: Apache-2.0
#include "gpu/fake_cuda.h"

#include <cstdlib>
#include <iterator>
#include <mutex>

#include "gpu/launch/driver_api.h"

namespace {

using coda::gpu::DeviceAddress;
using coda::gpu::DriverHandle;
using coda::gpu::FakeCuda;
namespace cuda = coda::gpu::cuda;

FakeCuda state;
std::mutex state_is_used;
int the_context;
thread_local DriverHandle current;

int called(const char* name) {
  ++state.calls[name];
  const auto found = state.fails.find(name);
  return found == state.fails.end() ? 0 : found->second;
}

unsigned char* bytes_at(DeviceAddress address) { return reinterpret_cast<unsigned char*>(address); }

int allocate(DeviceAddress* address, size_t bytes) {
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = reinterpret_cast<DeviceAddress>(memory);
  state.allocated[*address] = bytes;
  return 0;
}

int release(DeviceAddress address) {
  if (state.allocated.erase(address) == 0) return 1;
  std::free(bytes_at(address));
  return 0;
}

}  // namespace

// Each fails if it is told to.
// clang-format off: a function a line
#define FAKE(name, ...)                             \
  extern "C" int name(__VA_ARGS__) {                \
    const std::lock_guard lock(state_is_used);      \
    if (const int result = called(#name)) return result;
#define END \
  return 0; \
  }

extern "C" FakeCuda* fake_cuda_state() { return &state; }

FAKE(cuInit, unsigned) END
FAKE(cuDriverGetVersion, int* version) *version = state.version; END
FAKE(cuGetErrorName, int, const char** text) *text = "CUDA_ERROR_FAKE"; END
FAKE(cuGetErrorString, int, const char** text) *text = "a fake error"; END
FAKE(cuDeviceGetCount, int* count) *count = state.devices; END
FAKE(cuDeviceGet, int* device, int ordinal) *device = ordinal; END
FAKE(cuDeviceGetName, char* name, int, int) std::strcpy(name, "Fake GPU"); END
FAKE(cuDeviceGetAttribute, int* value, int which, int)
  switch (which) {
    case cuda::kCapabilityMajor: *value = state.major; break;
    case cuda::kCapabilityMinor: *value = state.minor; break;
    case cuda::kMultiprocessors: *value = 114; break;  // no default of the library
    case cuda::kSharedBytesOfBlock: *value = state.shared_bytes; break;
    case cuda::kMemoryPools: *value = state.has_pools ? 1 : 0; break;
    default: return 1;
  }
END
FAKE(cuDevicePrimaryCtxRetain, DriverHandle* context, int) *context = &the_context; END
FAKE(cuDevicePrimaryCtxRelease_v2, int) END
FAKE(cuCtxGetCurrent, DriverHandle* context) *context = current; END
FAKE(cuCtxGetDevice, int* device) *device = 0; END
FAKE(cuCtxPushCurrent_v2, DriverHandle context) current = context; END
FAKE(cuCtxPopCurrent_v2, DriverHandle* context) *context = current; current = nullptr; END
FAKE(cuCtxSynchronize) END
FAKE(cuModuleLoadData, DriverHandle* module, const void*) *module = new std::string; END
FAKE(cuModuleUnload, DriverHandle module) delete static_cast<std::string*>(module); END
FAKE(cuModuleGetFunction, DriverHandle* function, DriverHandle module, const char* name)
  *static_cast<std::string*>(module) = name;
  *function = module;
END
FAKE(cuFuncGetAttribute, int* value, int, DriverHandle) *value = 0; END
FAKE(cuFuncSetAttribute, DriverHandle, int, int) END
FAKE(cuOccupancyMaxActiveClusters, int* count, DriverHandle, const cuda::LaunchConfig*)
  *count = 1;
END
FAKE(cuLaunchKernelEx, const cuda::LaunchConfig* config, DriverHandle function, void** arguments,
     void**)
  const auto* first = static_cast<const unsigned char*>(arguments[0]);
  coda::gpu::FakeLaunch launch;
  launch.function = *static_cast<std::string*>(function);
  launch.grid = config->grid[0];
  launch.block = config->block[0];
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    const cuda::LaunchAttribute& attribute = config->attributes[i];
    if (attribute.id == cuda::kClusterDimension) launch.cluster = attribute.cluster[0];
    if (attribute.id == cuda::kDependentLaunch) launch.is_dependent = attribute.cluster[0] == 1;
  }
  launch.shared_bytes = config->shared_bytes;
  launch.stream = config->stream;
  launch.arguments.assign(first, first + state.argument_bytes);
  state.launches.push_back(launch);
END
FAKE(cuStreamCreate, DriverHandle* stream, unsigned) *stream = new int; END
FAKE(cuStreamCreateWithPriority, DriverHandle* stream, unsigned, int) *stream = new int; END
FAKE(cuStreamDestroy_v2, DriverHandle stream) delete static_cast<int*>(stream); END
FAKE(cuStreamSynchronize, DriverHandle) END
FAKE(cuStreamWaitEvent, DriverHandle stream, DriverHandle, unsigned)
  state.order.emplace_back("wait", stream);
END
FAKE(cuStreamIsCapturing, DriverHandle, int* status) *status = 0; END
FAKE(cuStreamBeginCapture_v2, DriverHandle, int) END
FAKE(cuStreamEndCapture, DriverHandle, DriverHandle* graph) *graph = &the_context; END
FAKE(cuGraphInstantiateWithFlags, DriverHandle* made, DriverHandle graph, unsigned long long)
  *made = graph;
END
FAKE(cuGraphLaunch, DriverHandle, DriverHandle) END
FAKE(cuGraphDestroy, DriverHandle) END
FAKE(cuGraphExecDestroy, DriverHandle) END
FAKE(cuEventCreate, DriverHandle* event, unsigned) *event = new int(0); END
FAKE(cuEventDestroy_v2, DriverHandle event) delete static_cast<int*>(event); END
FAKE(cuEventRecord, DriverHandle event, DriverHandle stream)  // a millisecond to the next
  state.order.emplace_back("record", stream);
  *static_cast<int*>(event) = state.calls["cuEventRecord"];
END
FAKE(cuEventSynchronize, DriverHandle) END
FAKE(cuEventElapsedTime, float* ms, DriverHandle from, DriverHandle to)
  *ms = static_cast<float>(*static_cast<int*>(to) - *static_cast<int*>(from));
END
FAKE(cuMemAlloc_v2, DeviceAddress* address, size_t bytes) return allocate(address, bytes); END
FAKE(cuMemFree_v2, DeviceAddress address) return release(address); END
FAKE(cuMemAllocAsync, DeviceAddress* address, size_t bytes, DriverHandle)
  return allocate(address, bytes);
END
FAKE(cuMemFreeAsync, DeviceAddress address, DriverHandle) return release(address); END
FAKE(cuPointerGetAttribute, void* value, int attribute, DeviceAddress address)
  const auto after = state.allocated.upper_bound(address);
  if (after == state.allocated.begin()) return 1;
  const auto [start, size] = *std::prev(after);
  if (address >= start + size) return 1;
  switch (attribute) {
    case 2: *static_cast<unsigned*>(value) = 2; break;  // device memory
    case 10: *static_cast<bool*>(value) = true; break;  // of one piece
    case 11: *static_cast<uint64_t*>(value) = start; break;
    case 12: *static_cast<uint64_t*>(value) = size; break;
    default: return 1;
  }
END
FAKE(cuMemHostAlloc, void** memory, size_t bytes, unsigned) *memory = std::malloc(bytes); END
FAKE(cuMemFreeHost, void* memory) std::free(memory); END
FAKE(cuMemGetInfo_v2, size_t* free, size_t* total) *free = 1000; *total = 2000; END
FAKE(cuMemsetD8Async, DeviceAddress address, unsigned char value, size_t count, DriverHandle)
  std::memset(bytes_at(address), value, count);
END
FAKE(cuMemsetD2D8Async, DeviceAddress address, size_t pitch, unsigned char value, size_t width,
     size_t height, DriverHandle)
  for (size_t i = 0; i < height; ++i) std::memset(bytes_at(address + i * pitch), value, width);
END
FAKE(cuMemcpy2DAsync_v2, const cuda::Copy2D* copy, DriverHandle)
  const bool from_device = copy->source_type == cuda::kDeviceMemory;
  const bool to_device = copy->target_type == cuda::kDeviceMemory;
  const auto* from = from_device ? bytes_at(copy->source)
                                 : static_cast<const unsigned char*>(copy->source_host);
  auto* to = to_device ? bytes_at(copy->target) : static_cast<unsigned char*>(copy->target_host);
  for (size_t i = 0; i < copy->height; ++i) {
    std::memcpy(to + i * copy->target_pitch, from + i * copy->source_pitch, copy->width_bytes);
  }
END
FAKE(cuMemcpyDtoDAsync_v2, DeviceAddress to, DeviceAddress from, size_t bytes, DriverHandle)
  std::memcpy(bytes_at(to), bytes_at(from), bytes);
END
FAKE(cuMemcpyHtoDAsync_v2, DeviceAddress to, const void* from, size_t bytes, DriverHandle stream)
  state.order.emplace_back("copy", stream);
  std::memcpy(bytes_at(to), from, bytes);
END
FAKE(cuMemcpyDtoHAsync_v2, void* to, DeviceAddress from, size_t bytes, DriverHandle stream)
  state.order.emplace_back("copy", stream);
  std::memcpy(to, bytes_at(from), bytes);
END
FAKE(cuTensorMapEncodeTiled, coda::device::TensorMap* map, int type, unsigned, void* address,
     const uint64_t* sizes, const uint64_t* pitch, const uint32_t* box, const uint32_t*, int,
     int swizzle, int, int)
  const coda::gpu::FakeTensorMap fake = {.address = reinterpret_cast<uint64_t>(address),
                                            .columns = sizes[0],
                                            .rows = sizes[1],
                                            .pitch_bytes = pitch[0],
                                            .box_columns = box[0],
                                            .box_rows = box[1],
                                            .type = type,
                                            .swizzle = swizzle};
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &fake, sizeof fake);
END

// An NVRTC that is too old.
FAKE(nvrtcVersion, int* major, int* minor) *major = 11; *minor = 8; END
FAKE(nvrtcGetErrorString) END
FAKE(nvrtcCreateProgram) END
FAKE(nvrtcCompileProgram) END
FAKE(nvrtcGetProgramLogSize) END
FAKE(nvrtcGetProgramLog) END
FAKE(nvrtcGetCUBINSize) END
FAKE(nvrtcGetCUBIN) END
FAKE(nvrtcGetPTXSize) END
FAKE(nvrtcGetPTX) END
FAKE(nvrtcDestroyProgram) END

struct FakeId {
  char bytes[128];
};
FAKE(ncclGetVersion, int* version) *version = state.nccl_version; END
FAKE(ncclGetUniqueId, FakeId* id) std::memset(id, 7, sizeof *id); END
FAKE(ncclCommInitRank, void** handle, int world, FakeId id, int rank)
  if (world != 1 || rank != 0 || id.bytes[127] != 7) return 4;
  *handle = &the_context;
END
FAKE(ncclCommDestroy, void*) END
FAKE(ncclReduceScatter, const void* from, void* to, size_t count, int type, int operation, void*,
     void* stream)
  state.order.emplace_back("exchange", stream);
  state.exchanges.push_back({from, to, count, type, operation, stream});
END
FAKE(ncclAllGather, const void* from, void* to, size_t count, int type, void*, void* stream)
  state.order.emplace_back("exchange", stream);
  state.exchanges.push_back({from, to, count, type, -1, stream});
END
FAKE(ncclAllReduce, const void* from, void* to, size_t count, int type, int operation, void*,
     void* stream)
  state.order.emplace_back("exchange", stream);
  state.exchanges.push_back({from, to, count, type, operation, stream});
END
extern "C" const char* ncclGetErrorString(int) { return "a fake reason"; }
extern "C" const char* ncclGetLastError(void*) { return "the last of them"; }
