// SPDX-License-Identifier: Apache-2.0
// The part of Open MPI that collectives need, declared here and opened at run time, so that neither
// building nor single-process runs require it. Handles are addresses of objects in the library, as
// in the ABI of libmpi.so.40 (Open MPI 3 to 5). Names are MPI's.
#pragma once

namespace coda {

struct MpiApi {
  // Throws Error if there is no Open MPI.
  MpiApi();

  int (*initialized)(int*);
  int (*init_thread)(int*, char***, int, int*);
  int (*finalize)();
  int (*comm_rank)(void*, int*);
  int (*comm_size)(void*, int*);
  int (*bcast)(void*, int, void*, int, void*);
  int (*sendrecv)(const void*, int, void*, int, int, void*, int, void*, int, int, void*, void*);

  void* comm_world;
  void* byte;
};

// Opened at the first call.
const MpiApi& mpi();

}  // namespace coda
