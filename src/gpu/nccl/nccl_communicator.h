// SPDX-License-Identifier: Apache-2.0
// Processes of a GPU each: NCCL exchanges on the backend's stream, so that what is exchanged waits
// for what is computed and may be captured into a CUDA graph with it; what goes on beside that is
// on a stream of its own. Its rings add up in an order
// that the machines' links and the number of processes decide.
#pragma once

#include <memory>

#include "coda/communicator.h"
#include "gpu/launch/launched_kernel.h"

namespace coda::gpu::nccl {

// Throws Error where there is no NCCL, the GPUs differ, or a process does not come.
std::unique_ptr<Communicator> join(const std::shared_ptr<GpuState>& state,
                                   const ProcessPlace& place);

}  // namespace coda::gpu::nccl
