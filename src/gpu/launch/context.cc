// SPDX-License-Identifier: Apache-2.0
// Retains the device's primary context, so that it is the one that the CUDA runtime uses.
#include "gpu/launch/context.h"

#include <utility>

#include "coda/error.h"

namespace coda::gpu {
namespace {

int attribute(int device, int which) {
  int value = 0;
  check_driver(driver().device_get_attribute(&value, which, device), "asking what the GPU is");
  return value;
}

int default_device() {
  DriverHandle current = nullptr;
  int ordinal = 0;
  if (driver().ctx_get_current(&current) == 0 && current != nullptr &&
      driver().ctx_get_device(&ordinal) == 0) {
    return ordinal;
  }
  return 0;
}

}  // namespace

Context::Context(int device) {
  int count = 0;
  check_driver(driver().device_get_count(&count), "counting GPUs");
  check_driver(count > 0 ? 0 : cuda::kNoDevice, "looking for a GPU");
  info_.ordinal = device < 0 ? default_device() : device;
  require(info_.ordinal < count, "there is no GPU " + std::to_string(info_.ordinal) +
                                     ": this process may use " + std::to_string(count) +
                                     ". Remedy: a lower number, or CUDA_VISIBLE_DEVICES");
  const std::string what = "opening GPU " + std::to_string(info_.ordinal);
  int handle = 0;
  check_driver(driver().device_get(&handle, info_.ordinal), what);
  char name[128] = {};
  check_driver(driver().device_get_name(name, sizeof name, handle), what);
  info_.name = name;
  info_.major = attribute(handle, cuda::kCapabilityMajor);
  info_.minor = attribute(handle, cuda::kCapabilityMinor);
  info_.multiprocessors = attribute(handle, cuda::kMultiprocessors);
  info_.shared_bytes = attribute(handle, cuda::kSharedBytesOfBlock);
  info_.has_pools = attribute(handle, cuda::kMemoryPools) != 0;
  check_driver(driver().device_primary_ctx_retain(&handle_, handle), what);
}

Context::~Context() {
  if (handle_ != nullptr) driver().device_primary_ctx_release(info_.ordinal);
}

Context::Scope::Scope(const Context& context) {
  DriverHandle current = nullptr;
  driver().ctx_get_current(&current);
  if (current == context.handle_) return;
  check_driver(driver().ctx_push_current(context.handle_), "using the GPU's context");
  is_pushed_ = true;
}

Context::Scope::~Scope() {
  DriverHandle popped = nullptr;
  if (is_pushed_) driver().ctx_pop_current(&popped);
}

const Target& target_of(const DeviceInfo& info, std::string_view name) {
  const Target& target = target_for(name, info.major, info.minor, info.name);
  const auto capability = std::pair(info.major, info.minor);
  const auto needed = std::pair(target.major, target.minor);
  const std::string gpu = "GPU " + std::to_string(info.ordinal) + " (" + info.name + ")";
  require(target.runs_on_newer ? capability >= needed : capability == needed,
          gpu + " has compute capability " + std::to_string(info.major) + "." +
              std::to_string(info.minor) + "; kernels of the target " + std::string(target.name) +
              " are made for " + std::to_string(target.major) + "." + std::to_string(target.minor) +
              (target.runs_on_newer ? " and later (" : " (") + std::string(target.gpus) +
              "). Remedy: choose such a GPU (CUDA_VISIBLE_DEVICES), leave the target and "
              "CODA_GPU_TARGET empty, or use the CPU backend");
  require(static_cast<uint32_t>(info.shared_bytes) >= target.shared_bytes,
          gpu + " gives a block " + std::to_string(info.shared_bytes >> 10) +
              " KiB of shared memory; kernels of the target " + std::string(target.name) +
              " use up to " + std::to_string(target.shared_bytes >> 10) +
              ". Remedy: set CODA_GPU_TARGET to compute_80, whose kernels use less, or choose "
              "another GPU (CUDA_VISIBLE_DEVICES)");
  return target;
}

}  // namespace coda::gpu
