// SPDX-License-Identifier: Apache-2.0
// Compilation is thread-safe and needs no context; loading happens in the launching thread.
#include "gpu/launch/loaded_kernels.h"

#include <algorithm>

#include "coda/error.h"

namespace coda::gpu {
namespace {

// The shared memory that a kernel can use without setting an attribute.
constexpr uint32_t kSharedWithoutAsking = 48 << 10;

}  // namespace

LoadedKernels::~LoadedKernels() {
  try {
    const Context::Scope scope(*context_);
    for (const auto& [source, entry] : entries_)
      if (entry.module != nullptr) driver().module_unload(entry.module);
  } catch (const Error&) {  // the context and its modules are already gone
  }
}

std::optional<int64_t> LoadedKernels::compiled_spilled_bytes(const std::string& source) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(source);
  if (found == entries_.end()) return std::nullopt;
  return found->second.spilled_bytes;
}

int64_t LoadedKernels::compile(const std::string& program, const std::string& source) {
  if (const auto known = compiled_spilled_bytes(source)) return *known;
  CompiledKernel kernel = builder_.build(program, source);
  const std::lock_guard lock(mutex_);
  const int64_t bytes = kernel.spilled_bytes();
  entries_.try_emplace(source, Entry{.cubin = std::move(kernel.cubin), .spilled_bytes = bytes});
  return bytes;
}

KernelLaunch LoadedKernels::chosen(const PlannedKernel& kernel, const SpilledBytes& spilled) {
  MadeWay made = gpu::make(kernel, spilled);
  if (kernel.name) {
    const std::string name = kernel.name(made.way);
    const std::lock_guard lock(mutex_);
    names_.insert(name);
  }
  return std::move(made.launch);
}

std::vector<KernelLaunch> LoadedKernels::make(const std::string& program, const KernelPlan& plan) {
  std::vector<KernelLaunch> launches;
  for (const PlannedKernel& kernel : plan.kernels)
    launches.push_back(
        chosen(kernel, [&](const std::string& source) { return compile(program, source); }));
  return launches;
}

std::vector<KernelLaunch> LoadedKernels::soonest(const KernelPlan& plan) {
  std::vector<KernelLaunch> launches;
  for (const PlannedKernel& kernel : plan.kernels) {
    bool is_known = false;  // of the last text
    KernelLaunch best = chosen(kernel, [&](const std::string& source) {
      std::optional<int64_t> bytes = compiled_spilled_bytes(source);
      if (!bytes) bytes = builder_.cached_spilled_bytes(source);
      is_known = bytes.has_value();
      return bytes.value_or(0);
    });
    std::optional<KernelLaunch> ready;
    if (!is_known)
      ready = first_ready(
          kernel, [&](const std::string& source) { return compiled_spilled_bytes(source) == 0; },
          [&](const std::string& name) {
            const std::lock_guard lock(mutex_);
            return names_.contains(name);
          });
    launches.push_back(ready ? *std::move(ready) : std::move(best));
  }
  return launches;
}

DriverHandle LoadedKernels::load(const std::string& program, const KernelLaunch& launch) {
  compile(program, launch.source);
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(launch.source);
  const Context::Scope scope(*context_);
  if (entry.function == nullptr) {
    if (const int result = driver().module_load_data(&entry.module, entry.cubin.data())) {
      check_driver(result, "loading the kernel of program '" + program + "', compiled by NVRTC " +
                               builder_.version().text() + " for a driver that runs CUDA " +
                               cuda_version_text(driver().version));
    }
    check_driver(
        driver().module_get_function(&entry.function, entry.module, launch.function.c_str()),
        "finding '" + launch.function + "' in the kernel of program '" + program + "'");
    entry.cubin.clear();
  }
  if (launch.shared_bytes > std::max(entry.shared_bytes, kSharedWithoutAsking)) {
    check_driver(driver().func_set_attribute(entry.function, cuda::kMaxDynamicShared,
                                             static_cast<int>(launch.shared_bytes)),
                 "asking for " + std::to_string(launch.shared_bytes) +
                     " bytes of shared memory for program '" + program + "'");
    entry.shared_bytes = launch.shared_bytes;
  }
  return entry.function;
}

}  // namespace coda::gpu
