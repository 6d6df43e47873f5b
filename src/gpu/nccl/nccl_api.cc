// SPDX-License-Identifier: Apache-2.0
// Loads NCCL and sets its environment before the first communicator is created.
#include "gpu/nccl/nccl_api.h"

#include <cstdlib>

#include "coda/error.h"
#include "gpu/jit/dynamic_library.h"

namespace coda::gpu::nccl {
namespace {

// The first version with support for Hopper.
constexpr int kOldest = 21800;

}  // namespace

Api::Api() {
  // Disables sums in switches (NVLS): they are not needed and take a resource that all users of a
  // machine share.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  // Limits the CTAs of NCCL's kernels, each of which occupies a multiprocessor. NVLink gives a CTA
  // about 20 GB/s, so 16 CTAs move a layer's gradients in part of an attention's time.
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
