// SPDX-License-Identifier: Apache-2.0
// A target can be chosen by name, so that the sm80 kernels can be tested on a Hopper GPU.
#include "gpu/targets/targets.h"

#include <cstdlib>

#include "coda/error.h"

namespace coda::gpu {

const Target& target_named(std::string_view name) {
  for (const Target* target : {&sm90(), &sm80()})
    if (target->name == name) return *target;
  for (const Target& target : sm80_targets())
    if (target.architecture == name) return target;
  throw Error(
      "there is no GPU target named '" + std::string(name) +
      "': set the target or CODA_GPU_TARGET to \"sm90\" (H100, H200) or \"sm80\" (GPUs since "
      "Ampere), or leave both empty");
}

const Target& target_for(std::string_view name, int major, int minor) {
  const char* chosen = std::getenv("CODA_GPU_TARGET");
  if (name.empty() && chosen != nullptr) name = chosen;
  const bool is_hopper = major == 0 || (major == sm90().major && minor == sm90().minor);
  if (name.empty()) return is_hopper ? sm90() : sm80_for(major, minor);
  const Target& target = target_named(name);
  return name == target.name && &target == &sm80() && major != 0 ? sm80_for(major, minor) : target;
}

}  // namespace coda::gpu
