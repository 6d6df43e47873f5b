// SPDX-License-Identifier: Apache-2.0
// Predicts the memory of a training step from its plan, before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/model_trainer.h"
#include "coda/plan.h"

namespace CODA_API coda {

struct MemoryUse {
  std::string what;  // "weights"
  int64_t bytes = 0;
};

struct StepMemory {
  std::vector<MemoryUse> uses;  // of the backend's memory (on a GPU: of the GPU's)
  // Of the host's memory, by settings that keep things there for a GPU.
  std::vector<MemoryUse> on_host{};

  int64_t bytes() const;  // of the backend's memory
  // "5.31 GB (weights 1.24 GB, ...), and of the host's memory 2.1 GB (inputs of layers 2.1 GB)".
  std::string text() const;
};

// Properties of the place where a training step runs that affect its memory.
struct StepPlace {
  bool is_on_host = true;
  int processes = 1;      // number of processes that share the optimizer's state
  int64_t workspace = 0;  // Backend::workspace_bytes, or gpu_workspace_bytes
  Optimizer optimizer = make_optimizer("adamw");
};
StepPlace step_place(const Plan& plan, const DimValues& sizes, Backend& backend,
                     const Communicator* communicator,
                     const Optimizer& optimizer = make_optimizer("adamw"));

// For a plan that computes the gradients of all its parameters, and for the optimizer's update. The
// memory that kernels themselves need on a GPU (code, CUDA graphs, NCCL's buffers) is not known in
// advance and not counted.
StepMemory step_memory(const Compiled& compiled, const DimValues& sizes, const StepPlace& place);
// For a ModelTrainer. `evaluates`: includes the memory for evaluating losses between training steps
// (ModelTask::losses).
StepMemory step_memory(const ModelTrainSettings& settings, Backend& backend, bool evaluates);

// The same, but throws MemoryError if it exceeds settings.memory_limit or, without a limit, what
// the backend has free. The message lists the uses of memory and settings that would fit. Nothing
// is allocated.
StepMemory require_memory(const ModelTrainSettings& settings, Backend& backend, bool evaluates);
// The same, and returns the training step that was compiled for it; a ModelTrainer can run it.
struct FittingStep {
  ModelStep step;
  StepMemory memory;
};
FittingStep fitting_step(const ModelTrainSettings& settings, Backend& backend, bool evaluates);

// Settings for a training step over the same sequences that need at most `bytes`, as text: "--batch
// 4 with --accumulate 8 (3.1 GB), or --recompute layer (5.2 GB)"; or a text saying that none was
// found.
std::string what_fits(const ModelTrainSettings& settings, Backend& backend, bool evaluates,
                      int64_t bytes);

}  // namespace CODA_API coda
