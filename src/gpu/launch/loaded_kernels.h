// SPDX-License-Identifier: Apache-2.0
// Caches kernels by their text: each is compiled at most once, by any thread, and loaded into a
// context at most once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu/codegen/kernel_plan.h"
#include "gpu/jit/kernel_builder.h"
#include "gpu/launch/context.h"

namespace coda::gpu {

class LoadedKernels {
 public:
  // `target`: as target_of(). Throws Error if the GPU cannot run the kernels of this target.
  LoadedKernels(std::shared_ptr<const Context> context, CacheOptions cache,
                std::string_view target = {})
      : context_(std::move(context)),
        builder_(std::move(cache), target_of(context_->info(), target)) {}
  ~LoadedKernels();
  LoadedKernels(const LoadedKernels&) = delete;
  LoadedKernels& operator=(const LoadedKernels&) = delete;

  // Compiles `source` unless it is already compiled. Returns the bytes of registers that it spills.
  // Thread-safe.
  int64_t compile(const std::string& program, const std::string& source);
  // Compiles the ways of each kernel in order until one does not spill. Thread-safe.
  std::vector<KernelLaunch> make(const std::string& program, const KernelPlan& plan);
  // Like make(), but avoids compilation. Each kernel gets its best way if that is compiled, else
  // the best way that this process has compiled for other sizes, else its best way. Thread-safe.
  std::vector<KernelLaunch> soonest(const KernelPlan& plan);
  // The function to launch, configured for the launch's shared memory. Throws Error naming the
  // program.
  DriverHandle load(const std::string& program, const KernelLaunch& launch);

  KernelBuilder& builder() { return builder_; }
  const Target& target() const { return builder_.target(); }

 private:
  struct Entry {
    std::vector<char> cubin;  // kept until it is loaded
    int64_t spilled_bytes = 0;
    DriverHandle module = nullptr;
    DriverHandle function = nullptr;
    uint32_t shared_bytes = 0;
  };

  // Chooses as gpu::make(), and remembers the name of the way.
  KernelLaunch chosen(const PlannedKernel& kernel, const SpilledBytes& spilled);
  // The bytes that a source spills; none if this process has not compiled it.
  std::optional<int64_t> compiled_spilled_bytes(const std::string& source);

  std::shared_ptr<const Context> context_;
  KernelBuilder builder_;
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by source
  std::set<std::string> names_;           // of ways that may be in entries_
};

}  // namespace coda::gpu
