// SPDX-License-Identifier: Apache-2.0
// A communicator with one GPU per process. NCCL exchanges on the backend's stream, so exchanges are
// ordered with computation and may be captured into the same CUDA graph; overlapping exchanges use
// a second stream. NCCL's rings add in an order that depends on the machines' links and the number
// of processes.
#pragma once

#include <memory>

#include "coda/communicator.h"
#include "gpu/launch/launched_kernel.h"

namespace coda::gpu::nccl {

// Throws Error if NCCL is missing, GPUs differ, or a process does not arrive.
std::unique_ptr<Communicator> join(const std::shared_ptr<GpuState>& state,
                                   const ProcessPlace& place);

}  // namespace coda::gpu::nccl
