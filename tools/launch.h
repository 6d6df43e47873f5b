// SPDX-License-Identifier: Apache-2.0
// Starting this command several times over: coda train --gpus and --processes. Where another
// launcher (torchrun, srun, mpirun) starts it, none of this runs.
#pragma once

namespace coda::tools {

// A process for each of the first `count` GPUs, with the same arguments, told apart by RANK,
// LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and with a secret of their own. Waits for
// all; where one fails it ends the others. Returns the exit status of the first that failed, 0 if
// none did. Signals that stop a run are handed on. Throws Error where there are fewer GPUs.
int run_on_gpus(int count);

// The same on CPUs, over memory that the processes share. They share the cores too, unless
// OMP_NUM_THREADS says how many threads each has.
int run_on_cpus(int count);

}  // namespace coda::tools
