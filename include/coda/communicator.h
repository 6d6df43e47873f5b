// SPDX-License-Identifier: Apache-2.0
// Training by several processes, one per GPU (or per share of the CPUs): the process's rank, and
// the collective operations. A launcher starts the processes: `coda train --gpus`, torchrun, srun
// or mpirun.
//
//     const ProcessPlace place = process_place();
//     const auto backend = make_backend("best", {.device = place.local_rank});
//     const auto communicator = backend->join(place);
//     options.communicator = communicator.get();  // coda/trainer.h
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/tensor.h"

namespace CODA_API coda {

// One of the processes that train together.
struct ProcessPlace {
  int rank = 0;          // 0 to world - 1; rank 0 prints and writes
  int world = 1;         // number of processes
  int local_rank = 0;    // rank among the processes of this machine: the number of its GPU
  std::string address;   // of rank 0's machine; empty: not given
  int port = 0;          // where rank 0 listens; 0: not given
  double patience = 60;  // seconds to wait for the other processes at the start
  double silence = 60;   // seconds without a message after which a process counts as dead
  // A process needs this secret to join the run. Empty: everybody who reaches rank 0's port may
  // join; then the port must be on a loopback address, or `is_open` must be set.
  std::string secret;
  bool is_open = false;
  int shared_memory = -1;  // on CPUs: make_shared_memory()'s descriptor; -1: Open MPI
};

// Reads the launcher's environment variables:
// - RANK, WORLD_SIZE and LOCAL_RANK (torchrun); OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_RANK
// (mpirun); or SLURM_PROCID, SLURM_STEP_NUM_TASKS and SLURM_LOCALID (srun);
// - MASTER_ADDR and MASTER_PORT; for processes on one machine the defaults are 127.0.0.1 and 29500.
// torchrun itself listens at MASTER_PORT, so then the next port is used;
// - CODA_JOIN_SECONDS, CODA_SILENT_SECONDS, CODA_JOIN_SECRET, CODA_JOIN_OPEN, CODA_SHARED_MEMORY.
// A single process if nothing is set. Throws Error for a value that is not a number, or for a rank
// outside the world.
ProcessPlace process_place();
// A new secret for the processes of a run. The launcher passes it to all as CODA_JOIN_SECRET.
std::string random_secret();
// Creates memory over which `world` processes of this machine exchange, and returns its file
// descriptor. The launcher lets the processes inherit it and passes its number as
// CODA_SHARED_MEMORY.
int make_shared_memory(int world);

// A setting that must be equal in all processes, as text: {"--lr", "0.004"}.
struct Setting {
  std::string name;
  std::string value;
};
using Settings = std::vector<Setting>;

// All processes must call the same functions in the same order. Matrices are dense, lie in memory
// of the backend that made the communicator, and are exchanged in order with that backend's work.
// `blocks` consists of one block of rows per process, all of equal size. For the same number of
// processes, sums are bitwise repeatable.
//
// If a process ends before it has left, all others end within half a minute with exit status 1:
// rank 0 (or rank 1 if rank 0 has ended) prints one line that names the process. The same happens
// if a process is silent for ProcessPlace::silence seconds because it is stopped or its machine is
// gone, and if a process calls other functions than rank 0 (which would otherwise wait forever).
class Communicator {
 public:
  virtual ~Communicator() = default;  // leaves the group after rank 0 has left
  virtual int rank() const = 0;
  virtual int world() const = 0;

  // fp32 only. Block `rank` becomes the sum of that block over all processes, added in a fixed
  // order. The other blocks are undefined afterwards.
  virtual void reduce_scatter(const TensorView& blocks) = 0;
  // Any type. Block r becomes what block r is in process r.
  virtual void all_gather(const TensorView& blocks) = 0;
  // fp32 only. Each element becomes its maximum over all processes.
  virtual void maximum(const TensorView& values) = 0;

  // All processes must pass the same names. If a value differs from rank 0's, all processes end
  // with one line that names the rank and the setting. In rank 0 this returns after all have
  // agreed.
  virtual void require_same(const Settings& settings) = 0;
  // Tells the group what this process does next ("step 12"). The functions above do this
  // themselves; call it for work that uses none of them, such as replaying a recorded step.
  virtual void announce(const std::string& what) = 0;

  // Runs the collective calls of `exchanges` after the backend's earlier work and after earlier
  // exchanges, concurrently with the backend's later work. Call the result before any other
  // exchange: the backend's work behind that call waits for the exchanges. On the host the
  // exchanges run at once.
  virtual std::function<void()> overlap(const std::function<void()>& exchanges) {
    exchanges();
    return [] {};
  }

  // Sends bytes of host memory to rank 0, which receives those of each process in the order in
  // which they were sent. This is independent of the collectives and may run concurrently with
  // them, from any thread, one call at a time in each process. The sender blocks until rank 0 takes
  // the bytes, or gives up when `stop` is requested. Both throw Error if not all bytes arrive.
  virtual void send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) = 0;
  virtual void receive_from(int rank, std::span<std::byte> bytes) = 0;

  // Called before a process gives up, so that only one message is printed. In rank 0 this returns,
  // so that rank 0 prints its message, and the other processes end silently. In any other rank it
  // does not return: rank 0 prints the message and all processes end.
  virtual void fail(const std::string& message) = 0;
  // Text that ends the line about a process that has died: how to resume the run.
  virtual void set_remedy(const std::string& remedy) = 0;
};

}  // namespace CODA_API coda
