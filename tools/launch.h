// SPDX-License-Identifier: Apache-2.0
// Runs this command as several processes: coda train --gpus and --processes. Not used if another
// launcher (torchrun, srun, mpirun) starts the processes.
#pragma once

namespace coda::tools {

// Starts one process for each of the first `count` GPUs with the same arguments, distinguished by
// RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, with a new secret. Waits for all; if
// one fails, ends the others. Returns the exit status of the first that failed, else 0. Forwards
// signals that stop a run. Throws Error if there are fewer GPUs.
int run_on_gpus(int count);

// The same on CPUs, over shared memory. The processes share the cores, unless OMP_NUM_THREADS sets
// the number of threads.
int run_on_cpus(int count);

}  // namespace coda::tools
