// SPDX-License-Identifier: Apache-2.0
// CODA_GPU_TARGET selects the target, so that the sm80 kernels can also be tested on newer GPUs.
#include "gpu/targets/targets.h"

#include <cstdlib>

#include "coda/error.h"

namespace coda::gpu {

const Target& target_named(std::string_view name) {
  for (const Target* target : {&sm90(), &sm80()})
    if (target->name == name) return *target;
  throw Error("there is no GPU target named '" + std::string(name) +
              "': set CODA_GPU_TARGET to \"sm90\" (H100, H200) or \"sm80\" (GPUs since Ampere, or "
              "newer ones to compare with)");
}

const Target& chosen_target() {
  const char* name = std::getenv("CODA_GPU_TARGET");
  return name == nullptr || *name == '\0' ? sm90() : target_named(name);
}

const Target& chosen_target(int major) {
  const Target& target = chosen_target();
  return &target == &sm80() && major > target.major ? sm80_ptx() : target;
}

}  // namespace coda::gpu
