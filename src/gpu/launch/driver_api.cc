// SPDX-License-Identifier: Apache-2.0
// Loads the functions from the driver's library and words its errors.
#include "gpu/launch/driver_api.h"

#include "coda/error.h"
#include "gpu/jit/dynamic_library.h"

namespace coda::gpu {
namespace {

// The first version with clusters and tensor maps.
constexpr int kOldestVersion = 12000;

// Advice for a result; empty if there is none.
std::string remedy_of(int result) {
  switch (result) {
    case cuda::kOutOfMemory:
      return "free memory of the GPU (nvidia-smi shows who has it) or use smaller sizes";
    case cuda::kNoDevice:
      return "there is no GPU that this process may use: check nvidia-smi and "
             "CUDA_VISIBLE_DEVICES, or use the CPU backend";
    case 101: return "there is no GPU of that number: check nvidia-smi and CUDA_VISIBLE_DEVICES";
    case 46:
    case 802: return "the GPU is busy or not ready: check nvidia-smi, or use another";
    case 803: return "the driver's kernel module and its library differ: restart the machine";
    case 804:
      return "the CUDA compatibility libraries do not fit this GPU: remove them from "
             "LD_LIBRARY_PATH";
    case 200:  // an image that the driver cannot load
    case 209:
    case 218:
    case 222:
      return "the driver is older than the compiler, or the GPU of another kind: update NVIDIA's "
             "driver, or set CODA_NVRTC to an NVRTC that is no newer than the driver";
    case 36: return "update NVIDIA's driver";
    case 201: return "the GPU's context has been destroyed: make the backend anew";
    case 214:
    case 220: return "the GPU's memory or link has failed: check nvidia-smi, and restart";
    // A kernel's faulty access ends the context.
    case 700:
    case 702:
    case 710:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
      return "a kernel that ran before, of this or another library, has failed, and the GPU's "
             "context can do no more: start the process anew; compute-sanitizer finds the kernel";
    case 900:
    case 901:
    case 902:
    case 903:
    case 904:
    case 905:
    case 906:
    case 907:
      return "a stream is captured into a CUDA graph, which does not allow this: run everything "
             "once before capturing";
    default: return "";
  }
}

}  // namespace

DriverApi::DriverApi() {
  const DynamicLibrary library(driver_library());
  library.load(init, "cuInit");
  library.load(driver_get_version, "cuDriverGetVersion");
  // Checked before newer functions are loaded, so that an old driver is reported as such.
  int found = 0;
  driver_get_version(&found);
  version = found;
  require(version >= kOldestVersion,
          "the CUDA driver at " + library.location() + " is too old: it runs CUDA " +
              cuda_version_text(version) + ", and " + cuda_version_text(kOldestVersion) +
              " is the oldest that works. Remedy: update NVIDIA's driver (525 or newer)");
  library.load(get_error_name, "cuGetErrorName");
  library.load(get_error_string, "cuGetErrorString");
  library.load(device_get_count, "cuDeviceGetCount");
  library.load(device_get, "cuDeviceGet");
  library.load(device_get_name, "cuDeviceGetName");
  library.load(device_get_attribute, "cuDeviceGetAttribute");
  library.load(device_primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  library.load(device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2");
  library.load(ctx_get_current, "cuCtxGetCurrent");
  library.load(ctx_get_device, "cuCtxGetDevice");
  library.load(ctx_push_current, "cuCtxPushCurrent_v2");
  library.load(ctx_pop_current, "cuCtxPopCurrent_v2");
  library.load(ctx_synchronize, "cuCtxSynchronize");
  library.load(module_load_data, "cuModuleLoadData");
  library.load(module_unload, "cuModuleUnload");
  library.load(module_get_function, "cuModuleGetFunction");
  library.load(func_get_attribute, "cuFuncGetAttribute");
  library.load(func_set_attribute, "cuFuncSetAttribute");
  library.load(occupancy_max_active_clusters, "cuOccupancyMaxActiveClusters");
  library.load(launch_kernel_ex, "cuLaunchKernelEx");
  library.load(stream_create, "cuStreamCreate");
  library.load(stream_create_with_priority, "cuStreamCreateWithPriority");
  library.load(stream_destroy, "cuStreamDestroy_v2");
  library.load(stream_synchronize, "cuStreamSynchronize");
  library.load(stream_wait_event, "cuStreamWaitEvent");
  library.load(stream_is_capturing, "cuStreamIsCapturing");
  library.load(stream_begin_capture, "cuStreamBeginCapture_v2");
  library.load(stream_end_capture, "cuStreamEndCapture");
  library.load(graph_instantiate, "cuGraphInstantiateWithFlags");
  library.load(graph_launch, "cuGraphLaunch");
  library.load(graph_destroy, "cuGraphDestroy");
  library.load(graph_exec_destroy, "cuGraphExecDestroy");
  library.load(event_create, "cuEventCreate");
  library.load(event_destroy, "cuEventDestroy_v2");
  library.load(event_record, "cuEventRecord");
  library.load(event_synchronize, "cuEventSynchronize");
  library.load(event_elapsed_time, "cuEventElapsedTime");
  library.load(mem_alloc, "cuMemAlloc_v2");
  library.load(mem_free, "cuMemFree_v2");
  library.load(mem_alloc_async, "cuMemAllocAsync");
  library.load(mem_free_async, "cuMemFreeAsync");
  library.load(mem_host_alloc, "cuMemHostAlloc");
  library.load(mem_free_host, "cuMemFreeHost");
  library.load(mem_get_info, "cuMemGetInfo_v2");
  library.load(memset_d8_async, "cuMemsetD8Async");
  library.load(memset_d2d8_async, "cuMemsetD2D8Async");
  library.load(memcpy_2d_async, "cuMemcpy2DAsync_v2");
  library.load(memcpy_dtod_async, "cuMemcpyDtoDAsync_v2");
  library.load(memcpy_htod_async, "cuMemcpyHtoDAsync_v2");
  library.load(memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2");
  library.load(tensor_map_encode_tiled, "cuTensorMapEncodeTiled");
}

const DriverApi& driver() {
  static const DriverApi api;
  // Retried at each call until it succeeds, because a GPU may become ready.
  static const bool started = [] {
    const int result = api.init(0);
    if (result == 0) return true;
    const char* reason = nullptr;
    api.get_error_string(result, &reason);
    const std::string remedy = remedy_of(result);
    throw Error("starting the CUDA driver: " + std::string(reason == nullptr ? "error" : reason) +
                " (" + std::to_string(result) + ")" +
                (remedy.empty() ? "" : ". Remedy: " + remedy));
  }();
  static_cast<void>(started);
  return api;
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void check_driver(int result, const std::string& what) {
  if (result == 0) return;
  const char* name = nullptr;
  const char* reason = nullptr;
  driver().get_error_name(result, &name);
  driver().get_error_string(result, &reason);
  std::string message = what + ": " + (reason == nullptr ? "unknown error" : reason) + " (" +
                        (name == nullptr ? std::to_string(result) : std::string(name)) + ")";
  if (const std::string remedy = remedy_of(result); !remedy.empty())
    message += ". Remedy: " + remedy;
  if (result == cuda::kOutOfMemory) throw MemoryError(message);
  throw Error(message);
}

void check_driver(int result, const char* what, const std::string& subject) {
  if (result != 0) check_driver(result, what + subject);
}

}  // namespace coda::gpu
