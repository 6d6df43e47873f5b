// SPDX-License-Identifier: Apache-2.0
// Training by several processes, one a GPU (or a share of the CPUs): which of them this one is, and
// what they exchange. A launcher starts them: `coda train --gpus`, torchrun, srun or mpirun.
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

// A process among those that train together.
struct ProcessPlace {
  int rank = 0;          // 0 to world - 1; rank 0 prints and writes
  int world = 1;         // processes
  int local_rank = 0;    // among those of its machine: the number of its GPU
  std::string address;   // of rank 0's machine; empty: not said
  int port = 0;          // where rank 0 listens; 0: not said
  double patience = 60;  // seconds to wait for the others at the start
  double silence = 60;   // seconds without a word after which a process counts as dead
  // Who knows it may join the run. Empty: everybody may who reaches rank 0's port, and that must be
  // of this machine alone (a loopback address), or `is_open`.
  std::string secret;
  bool is_open = false;
  int shared_memory = -1;  // on CPUs of one machine: what make_shared_memory() gave; -1: Open MPI
};

// What the launcher has set: RANK, WORLD_SIZE and LOCAL_RANK (torchrun), OMPI_COMM_WORLD_RANK,
// _SIZE and _LOCAL_RANK (mpirun), or SLURM_PROCID, SLURM_STEP_NUM_TASKS and SLURM_LOCALID (srun);
// MASTER_ADDR and MASTER_PORT, where they are needed and the processes are of one machine
// 127.0.0.1 and 29500; CODA_JOIN_SECONDS, CODA_SILENT_SECONDS, CODA_JOIN_SECRET, CODA_JOIN_OPEN and
// CODA_SHARED_MEMORY. torchrun itself listens at MASTER_PORT, so that there the port is the next
// one. One process where nothing is set. Throws Error for what is no number, or no rank of that
// world.
ProcessPlace process_place();
// A new secret for the processes of a run: who starts them gives it to all as CODA_JOIN_SECRET.
std::string random_secret();
// The descriptor of memory that `world` processes of this machine exchange over: who starts them
// lets them inherit it, and says its number in CODA_SHARED_MEMORY.
int make_shared_memory(int world);

// What all processes must have alike, for people: {"--lr", "0.004"}.
struct Setting {
  std::string name;
  std::string value;
};
using Settings = std::vector<Setting>;

// All processes call the same functions in the same order. Matrices are dense, lie in the memory
// of the backend that made it, and are exchanged in the order of what that runs; `blocks` are as
// many equal blocks of whole rows as there are processes. With the same processes sums have the
// same bits each time.
//
// Where a process ends before it has left, all others end within half a minute: rank 0 (or, if it
// is the one, rank 1) prints one line that names it, and the exit status is 1. So it is where a
// process says nothing for ProcessPlace::silence seconds because it is stopped or its machine is
// gone; and where one calls other functions than rank 0, which would wait for it for ever.
class Communicator {
 public:
  virtual ~Communicator() = default;  // leaves, once rank 0 has
  virtual int rank() const = 0;
  virtual int world() const = 0;

  // Of fp32: block `rank` becomes the sum of that block of all processes, added up in a fixed
  // order. Other blocks are undefined afterwards.
  virtual void reduce_scatter(const TensorView& blocks) = 0;
  // Of any type: block r becomes what it is in process r.
  virtual void all_gather(const TensorView& blocks) = 0;
  // Of fp32: each element becomes the largest that a process has there.
  virtual void maximum(const TensorView& values) = 0;

  // All processes call it with the same names; where a value is another one than rank 0's, all end
  // with one line that names the rank and the setting. In rank 0 it returns once all are the same.
  virtual void require_same(const Settings& settings) = 0;
  // Says what this process is about to do with the others ("step 12"). The functions above do so
  // themselves; it is for what calls none of them, as the replay of a recorded step.
  virtual void announce(const std::string& what) = 0;

  // What `exchanges` calls of the above goes on beside what the backend runs from now on, behind
  // what it ran before and what earlier calls of this exchange. The result is to be called before
  // any other exchange: what the backend runs behind that call comes behind these exchanges. On the
  // host they are made at once.
  virtual std::function<void()> beside(const std::function<void()>& exchanges) {
    exchanges();
    return [] {};
  }

  // Bytes of the host's memory to rank 0, which receives each process's in the order in which that
  // sends them: no exchange, and beside all of them. From any thread, of a process one call at a
  // time. Who sends waits until rank 0 takes the bytes, or gives up where `stop` is asked for.
  // Throw Error where not all of them came through.
  virtual void send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) = 0;
  virtual void receive_from(int rank, std::span<std::byte> bytes) = 0;

  // Before a process gives up, so that there is one message: rank 0 returns, to print it, and the
  // others end silently; elsewhere rank 0 prints it and all end, and this does not return.
  virtual void fail(const std::string& message) = 0;
  // What the line about a process that has ended says at its end: where to go on from.
  virtual void set_remedy(const std::string& remedy) = 0;
};

}  // namespace CODA_API coda
