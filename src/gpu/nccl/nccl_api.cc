// SPDX-License-Identifier: Apache-2.0
#include "gpu/nccl/nccl_api.h"

#include <cstdlib>

#include "coda/error.h"
#include "gpu/jit/dynamic_library.h"

namespace coda::gpu::nccl {
namespace {

// The first that is made for Hopper.
constexpr int kOldest = 21800;

}  // namespace

Api::Api() {
  // Sums that switches make (NVLS) are not needed, and take a resource that all users of a machine
  // share. NCCL reads it when its first communicator is made.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  // Blocks of its kernels, of which each takes a multiprocessor from what runs beside it. NVLink
  // gives a block some 20 GB/s, so 16 move a layer's gradients in a part of an attention's time.
  setenv("NCCL_MAX_CTAS", "16", 0);
  const DynamicLibrary library(nccl_library());
  int (*get_version)(int*) = nullptr;
  library.load(get_version, "ncclGetVersion");
  get_version(&version);
  require(version >= kOldest, "NCCL at " + library.location() + " is " + version_text(version) +
                                  "; several GPUs need " + version_text(kOldest) +
                                  " or newer. Remedy: pip install -U nvidia-nccl-cu13");
  library.load(get_unique_id, "ncclGetUniqueId");
  library.load(init_rank, "ncclCommInitRank");
  library.load(destroy, "ncclCommDestroy");
  library.load(reduce_scatter, "ncclReduceScatter");
  library.load(all_gather, "ncclAllGather");
  library.load(all_reduce, "ncclAllReduce");
  library.load(error_string, "ncclGetErrorString");
  library.load(last_error, "ncclGetLastError");
}

const Api& api() {
  static const Api opened;
  return opened;
}

void check(int status, const char* what) {
  if (status == 0) return;
  const char* const detail = api().last_error(nullptr);
  throw Error(std::string("NCCL ") + version_text(api().version) + ": " + what + ": " +
              api().error_string(status) +
              (detail == nullptr || *detail == 0 ? "" : std::string(": ") + detail) +
              " (NCCL_DEBUG=INFO says more)");
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace coda::gpu::nccl
