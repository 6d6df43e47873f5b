// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels of a plan on a Hopper GPU, without one: their text, and the cache of compiled
// kernels filled ahead. A plan of one program is one_step_plan(program).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/plan.h"

namespace CODA_API coda {

struct KernelOptions {
  uint32_t multiprocessors = 132;      // of the GPU that will run them: H100 and H200 have 132
  std::string device = "NVIDIA H200";  // its name: an H100 gets other configurations
  unsigned threads = 0;                // that compile at once; 0: as many as the machine has
};

struct KernelText {
  std::string program;        // whose kernel it is, or the function of an opaque call
  std::string source;         // CUDA C++ of one kernel; it includes files of device/, nothing else
  uint32_t grid = 1;          // CTAs
  uint32_t cluster = 1;       // CTAs of a cluster
  uint32_t threads = 1;       // of a CTA
  uint32_t shared_bytes = 0;  // dynamic
  std::string note;           // that and why a program was split into several kernels, if it was
};

// In the order in which they first run, each text once, for tensors without gaps between rows. With
// the first choice of each that is not known to spill registers: what the compiler says is in the
// cache once they were compiled.
// Throws Error, naming the program, where something does not fit a GPU.
std::vector<KernelText> emit_kernels(const Plan& plan, const DimValues& sizes,
                                     const KernelOptions& options = {});

// How a kernel with products is made: all choices give the same bits.
struct KernelChoice {
  std::string program;       // whose kernel it is, or of which part of one that is split
  std::string chosen;        // "128x256 cooperative, cluster 2x1, 3 stages"
  std::string chosen_by;     // "tuned at 512x256x128", "the shipped table at ...", "the model"
  std::string kernel_class;  // docs/configurations.md: with the extents what times are kept under
  std::string extents;       // "512x256x128"
  std::vector<std::string> ranked;  // all choices, the best by the model first
};

// Of the programs that kernels can be made of, in the plan's order.
std::vector<KernelChoice> kernel_choices(const Plan& plan, const DimValues& sizes,
                                         const KernelOptions& options = {});

struct SizedPlan {
  Plan plan;
  DimValues sizes;  // of its symbols
};

// Bytes that the kernels of a plan use beside its tensors while they run, attention by cuDNN
// included. Needs no GPU. Throws Error as emit_kernels does.
int64_t gpu_workspace_bytes(const Plan& plan, const DimValues& sizes,
                            const KernelOptions& options = {});

struct Precompiled {
  int64_t kernels = 0;
  int64_t compiled = 0;              // the others were in the cache
  int64_t spilled = 0;               // of all: registers spill, and another took their place
  std::filesystem::path folder;      // of the cache; empty: none, and nothing was kept
  std::string compiler;              // "NVRTC 12.9 at ..."
  std::vector<std::string> defects;  // what makes a kernel slow (spilled registers), for people
};

// Compiles the plans' kernels, all at once, into the cache, where sessions find them; where
// registers spill, the next choice too. Needs NVRTC, but no GPU. Throws Error naming what is
// missing, or as emit_kernels does.
Precompiled precompile(const std::vector<SizedPlan>& plans, const KernelOptions& options = {});

}  // namespace CODA_API coda
