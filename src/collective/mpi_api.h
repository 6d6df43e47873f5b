// SPDX-License-Identifier: Apache-2.0
// The part of Open MPI that collectives need, declared here and opened at run time: neither to
// build nor to run on one process it need be there. Its handles are addresses of objects in the
// library, which is what its C interface has in place of MPI_COMM_WORLD and the like; that holds
// for libmpi.so.40, Open MPI 3 to 5. Names are MPI's.
#pragma once

namespace coda {

struct MpiApi {
  // Throws Error where there is no Open MPI.
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
