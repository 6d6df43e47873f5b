// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/loaded_kernels.h"

#include <algorithm>

#include "coda/error.h"

namespace coda::gpu {
namespace {

// More needs to be asked for.
constexpr uint32_t kSharedWithoutAsking = 48 << 10;

}  // namespace

LoadedKernels::~LoadedKernels() {
  try {
    const Context::Scope scope(*context_);
    for (const auto& [source, entry] : entries_)
      if (entry.module != nullptr) driver().module_unload(entry.module);
  } catch (const Error&) {  // the context is gone, and its modules with it
  }
}

bool LoadedKernels::compile(const std::string& program, const KernelLaunch& launch) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(launch.source);
    if (found != entries_.end()) return found->second.spills;
  }
  CompiledKernel kernel = builder_.build(program, launch.source);
  const std::lock_guard lock(mutex_);
  const bool spills = !kernel.defect.empty();
  entries_.try_emplace(launch.source, Entry{.cubin = std::move(kernel.cubin), .spills = spills});
  return spills;
}

std::vector<KernelLaunch> LoadedKernels::make(
    const std::string& program, std::vector<KernelLaunch> launches,
    const std::function<std::vector<KernelLaunch>()>& lowering) {
  for (;;) {
    bool spills = false;
    for (const KernelLaunch& launch : launches) spills = compile(program, launch) || spills;
    if (!spills) return launches;
    std::vector<KernelLaunch> next = lowering();
    const auto same = [](const auto& a, const auto& b) { return a.source == b.source; };
    if (std::equal(next.begin(), next.end(), launches.begin(), launches.end(), same)) return next;
    launches = std::move(next);
  }
}

DriverHandle LoadedKernels::load(const std::string& program, const KernelLaunch& launch) {
  compile(program, launch);
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
