// SPDX-License-Identifier: Apache-2.0
// Retains the device's primary context, so that it is the one that the CUDA runtime uses.
#include "gpu/launch/context.h"

#include <utility>

#include "coda/error.h"
#include "gpu/targets/targets.h"

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

void check_architecture(const DeviceInfo& info) {
  const Target& target = chosen_target(info.major);
  const auto capability = std::pair(info.major, info.minor);
  const auto needed = std::pair(target.major, target.minor);
  require(target.runs_on_newer ? capability >= needed : capability == needed,
          "GPU " + std::to_string(info.ordinal) + " (" + info.name + ") has compute capability " +
              std::to_string(info.major) + "." + std::to_string(info.minor) +
              "; kernels are made for " + std::to_string(target.major) + "." +
              std::to_string(target.minor) + " (" + std::string(target.gpus) +
              "). Remedy: choose such a GPU "
              "(CUDA_VISIBLE_DEVICES), or use the CPU backend");
}

}  // namespace coda::gpu
