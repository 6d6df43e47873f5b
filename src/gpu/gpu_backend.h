// SPDX-License-Identifier: Apache-2.0
// The GPU backend. It lowers programs to kernels (lower), compiles them or finds them in the cache,
// and launches them on the caller's stream. Only synchronize() waits for the GPU. After one run
// with the same tensors, runs may be captured into a CUDA graph. Tensors are in device memory.
// Invariant: results have the same bits in every run and for every tile configuration.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coda/backend.h"
#include "coda/device.h"
#include "gpu/codegen/kernel_plan.h"
#include "gpu/jit/cubin_cache.h"
#include "gpu/jit/kernel_builder.h"
#include "gpu/legalise/lower_options.h"

namespace coda::gpu {

using Lowering = std::function<KernelPlan(const Program&, const DimValues&, const LowerOptions&)>;

struct GpuOptions {
  int device = -1;       // -1: that of the thread's current CUDA context, else 0
  std::string target{};  // a name of targets/targets.h; empty: CODA_GPU_TARGET, else the GPU's own
  CacheOptions cache;
  unsigned compile_threads = 0;  // 0: one per hardware thread
  Lowering lowering;             // called by several threads concurrently; empty: plan_program()
  GpuAttention attention = GpuAttention::repeatable;
  // A kernel may start while the previous one in the stream ends (programmatic dependent launch).
  // Ignored for drivers that cannot capture such launches into graphs.
  bool dependent_launch = true;
  // For callers whose sizes vary from step to step: see BackendOptions.
  bool takes_compiled = false;
};

// Throws Error if there is no GPU of the right kind, or no driver.
std::unique_ptr<Backend> make_gpu_backend(const GpuOptions& options = {});

}  // namespace coda::gpu
