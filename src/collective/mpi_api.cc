// SPDX-License-Identifier: Apache-2.0
// Opens libmpi and resolves its functions and predefined objects.
#include "collective/mpi_api.h"

#include <dlfcn.h>

#include <string>

#include "coda/error.h"

namespace coda {
namespace {

constexpr const char* kRemedy =
    " (install it: apt-get install openmpi-bin; a GPU for each process needs no MPI)";

void* open_library() {
  // Open MPI's components look for its symbols among all loaded libraries.
  void* library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    throw Error("several processes on CPUs exchange over Open MPI, which cannot be opened: " +
                std::string(reason == nullptr ? "libmpi.so.40" : reason) + kRemedy);
  }
  return library;
}

void* symbol(void* library, const char* name) {
  void* const found = dlsym(library, name);
  require(found != nullptr,
          "libmpi.so.40 is not Open MPI: it has no " + std::string(name) + kRemedy);
  return found;
}

}  // namespace

MpiApi::MpiApi() {
  void* const library = open_library();
  comm_world = symbol(library, "ompi_mpi_comm_world");
  byte = symbol(library, "ompi_mpi_byte");
  const auto load = [library](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol(library, name));
  };
  load(initialized, "MPI_Initialized");
  load(init_thread, "MPI_Init_thread");
  load(finalize, "MPI_Finalize");
  load(comm_rank, "MPI_Comm_rank");
  load(comm_size, "MPI_Comm_size");
  load(bcast, "MPI_Bcast");
  load(sendrecv, "MPI_Sendrecv");
}

const MpiApi& mpi() {
  static const MpiApi api;
  return api;
}

}  // namespace coda
