// SPDX-License-Identifier: Apache-2.0
// Starting this command several times over: coda train --gpus and --processes. Where another
// launcher (torchrun, srun, mpirun) starts it, none of this runs.
#pragma once

namespace coda::tools {

// A process for each of the first `count` GPUs, with the same arguments, told apart by RANK,
// LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Waits for all; where one fails it ends the
// others. Returns the exit status of the first that failed, 0 if none did. Signals that stop a run
// are handed on. Throws Error where there are fewer GPUs.
int run_on_gpus(int count);

// mpirun with `count` processes of the same arguments, on CPUs. They share the cores unless
// OMP_NUM_THREADS says how many threads each has. Returns mpirun's exit status. Signals that stop a
// run are handed on as SIGUSR1, which mpirun gives to all: others it would follow by SIGKILL before
// a checkpoint is saved. Throws Error where there is no mpirun.
int run_under_mpi(int count);

}  // namespace coda::tools
