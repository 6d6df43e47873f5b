// SPDX-License-Identifier: Apache-2.0
// Processes on CPUs, whose tensors lie in the host's memory: Open MPI carries the bytes. Sums are
// made here, in the order of the ranks, because an MPI library may choose another order for
// another size.
#pragma once

#include <memory>

#include "coda/communicator.h"

namespace coda {

// Throws Error where there is no Open MPI, or the processes were not started by mpirun (or srun
// with its PMI).
std::unique_ptr<Communicator> join_over_mpi(const ProcessPlace& place);

}  // namespace coda
