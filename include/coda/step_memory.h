// SPDX-License-Identifier: Apache-2.0
// The memory that a training step takes, known from its plan before any of it is allocated.
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
  std::vector<MemoryUse> uses;  // of the backend's memory: on a GPU, of the GPU's

  int64_t bytes() const;
  // "5.31 GB: weights 1.24 GB, ...".
  std::string text() const;
};

// Where a step runs, as far as its memory depends on it.
struct StepPlace {
  bool is_on_host = true;
  int processes = 1;      // number of processes that share the optimizer's state
  int64_t workspace = 0;  // Backend::workspace_bytes, or gpu_workspace_bytes
  // Bytes of optimizer state for each element of a parameter; the default is AdamW's.
  int64_t state_bytes = 8;
};
// In a single process on the host, all states are fp32.
int64_t state_bytes(const Optimizer& optimizer, const Backend& backend,
                    const Communicator* communicator);
StepPlace step_place(const Plan& plan, const DimValues& sizes, Backend& backend,
                     const Communicator* communicator,
                     const Optimizer& optimizer = make_optimizer("adamw"));

// For a plan that computes the gradients of all its parameters, and for the optimizer's update. The
// memory that kernels themselves need on a GPU (code, CUDA graphs, NCCL's buffers) is not known in
// advance and not counted.
StepMemory step_memory(const Compiled& compiled, const DimValues& sizes, const StepPlace& place);
// As a ModelTrainer takes it, and besides what the loss on other texts takes between steps
// (ModelTask::losses) if it is asked for.
StepMemory step_memory(const ModelTrainSettings& settings, Backend& backend, bool evaluates);

// The same. Throws MemoryError unless that is there: settings.memory_limit, or what the backend has
// free. The message says what takes how much, and which settings would fit; nothing is allocated.
StepMemory require_memory(const ModelTrainSettings& settings, Backend& backend, bool evaluates);
// The same, with the step as it was compiled for that: a ModelTrainer runs it.
struct FittingStep {
  ModelStep step;
  StepMemory memory;
};
FittingStep fitting_step(const ModelTrainSettings& settings, Backend& backend, bool evaluates);

// Settings of a step over the same sequences that take no more than `bytes`: "--batch 4 with
// --accumulate 8 (3.1 GB), or --recompute layer (5.2 GB)"; or that none was found.
std::string what_fits(const ModelTrainSettings& settings, Backend& backend, bool evaluates,
                      int64_t bytes);

}  // namespace CODA_API coda
