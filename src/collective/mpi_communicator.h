// SPDX-License-Identifier: Apache-2.0
// Processes on the CPUs of one or several machines, started by mpirun: Open MPI carries the bytes.
#pragma once

#include <memory>

#include "coda/communicator.h"

namespace coda {

// Throws Error where there is no Open MPI, or the processes were not started by mpirun (or srun
// with its PMI).
std::unique_ptr<Communicator> join_over_mpi(const ProcessPlace& place);

}  // namespace coda
