// SPDX-License-Identifier: Apache-2.0
// Emits and compiles the CUDA kernels of a plan without needing a GPU: for reading the code, and
// for filling the kernel cache ahead of a run. For a single program use one_step_plan(program).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/plan.h"

namespace CODA_API coda {

struct GpuCard;  // coda/gpu_card.h

struct KernelOptions {
  uint32_t multiprocessors = 0;        // of the target GPU; 0: as many as the first of its kind
  std::string device = "NVIDIA H200";  // name of the target GPU: an H100 gets other configurations
  int major = 0;                       // compute capability of the target GPU; 0: that of `target`
  int minor = 0;
  std::string target = {};  // as BackendOptions::target
  unsigned threads = 0;     // compiler threads; 0: one per hardware thread
};
// For a card that this machine need not have.
KernelOptions kernel_options(const GpuCard& card);

struct KernelText {
  std::string program;        // the program, or the function of an opaque call
  std::string source;         // CUDA C++ of one kernel; includes only files of device/
  uint32_t grid = 1;          // number of CTAs
  uint32_t cluster = 1;       // CTAs per cluster
  uint32_t threads = 1;       // threads per CTA
  uint32_t shared_bytes = 0;  // dynamic shared memory
  std::string note;           // why the program was split into several kernels; empty: it was not
};

// The kernels in the order in which they first run, without duplicates, for tensors without gaps
// between rows. Uses the first choice for each kernel that is not known to spill registers (the
// cache records spills after compilation). Throws Error, naming the program, if something does not
// fit a GPU.
std::vector<KernelText> emit_kernels(const Plan& plan, const DimValues& sizes,
                                     const KernelOptions& options = {});

// How a kernel with GEMMs is configured. All choices give the same bits.
struct KernelChoice {
  std::string program;       // the program, or the part of a split program
  std::string chosen;        // "128x256 cooperative, cluster 2x1, 3 stages"
  std::string chosen_by;     // "tuned at 512x256x128", "the shipped table at ...", "the model"
  std::string kernel_class;  // docs/configurations.md; times are stored under class and extents
  std::string extents;       // "512x256x128"
  std::vector<std::string> ranked;  // all choices, in the cost model's order
};

// The choices for all programs that compile to GEMM kernels, in the plan's order.
std::vector<KernelChoice> kernel_choices(const Plan& plan, const DimValues& sizes,
                                         const KernelOptions& options = {});

struct SizedPlan {
  Plan plan;
  DimValues sizes;  // of its symbols
};

// Memory that the kernels of a plan use while they run in addition to its tensors, including
// cuDNN's for attention. Needs no GPU. Throws Error as emit_kernels does.
int64_t gpu_workspace_bytes(const Plan& plan, const DimValues& sizes,
                            const KernelOptions& options = {});

struct Precompiled {
  int64_t kernels = 0;
  int64_t compiled = 0;              // the others were cached
  int64_t spilled = 0;               // kernels that were replaced because they spill registers
  std::filesystem::path folder;      // of the cache; empty: nothing was cached
  std::string compiler;              // "NVRTC 12.9 at ..."
  std::vector<std::string> defects;  // for people: why a kernel is slow (spilled registers)
};

// Compiles the kernels of all plans in parallel into the cache, where sessions find them. If a
// kernel spills registers, also compiles the next choice. Needs NVRTC but no GPU. Throws Error
// naming what is missing, or as emit_kernels does.
Precompiled precompile(const std::vector<SizedPlan>& plans, const KernelOptions& options = {});

}  // namespace CODA_API coda
