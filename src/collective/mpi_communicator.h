// SPDX-License-Identifier: Apache-2.0
// Exchanges over Open MPI, between processes on one or several machines that mpirun started.
#pragma once

#include <memory>

#include "coda/communicator.h"

namespace coda {

// Throws Error if there is no Open MPI, or if the processes were not started by mpirun (or by srun
// with its PMI).
std::unique_ptr<Communicator> join_over_mpi(const ProcessPlace& place);

}  // namespace coda
