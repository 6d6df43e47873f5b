// SPDX-License-Identifier: Apache-2.0
// A target can be chosen by name, so that the sm80 kernels can be tested on a Hopper GPU.
#include "gpu/targets/targets.h"

#include <cstdlib>
#include <string>

#include "coda/error.h"
#include "coda/gpu_card.h"

namespace coda::gpu {

namespace {

// "sm_120" of "sm120".
std::string architecture_text(std::string_view name) {
  std::string text(name);
  if (text.starts_with("sm") && text.find('_') == std::string::npos) text.insert(2, "_");
  return text;
}

const Target* find_target(std::string_view name) {
  if (name == sm90().name || name == sm90().architecture) return &sm90();
  if (name == sm80().name) return &sm80();
  if (name == sm89().name) return &sm89();
  const size_t colon = name.find(':');
  const std::string_view own = colon == std::string_view::npos ? "" : name.substr(0, colon);
  const std::string architecture = architecture_text(name.substr(own.empty() ? 0 : colon + 1));
  for (const Target& target : sm80_targets()) {
    if (target.architecture == architecture && (own.empty() || target.name == own)) return &target;
  }
  return nullptr;
}

}  // namespace

const Target& target_named(std::string_view name) {
  if (const Target* target = find_target(name)) return *target;
  throw Error("there is no GPU target named '" + std::string(name) +
              "': set the target or CODA_GPU_TARGET to \"sm90\" (H100, H200), \"sm80\" (GPUs "
              "since Ampere) or \"sm89\" (sm80 with 8-bit floats, GPUs since Ada), or leave both "
              "empty");
}

const Target& target_for(std::string_view name, int major, int minor, std::string_view device) {
  const char* chosen = std::getenv("CODA_GPU_TARGET");
  if (name.empty() && chosen != nullptr) name = chosen;
  if (major == 0) return name.empty() ? sm90() : target_named(name);
  const bool is_hopper = major == sm90().major && minor == sm90().minor;
  if (name == sm90().name || (name.empty() && is_hopper)) return sm90();
  const bool is_own = name.empty() || name == sm80().name || name == sm89().name;
  // sm89 asked for on an older GPU stays sm89, so that target_of() refuses it.
  const bool is_too_old = name == sm89().name && !sm80_for(major, minor).has_eight_bits;
  const Target& target =
      is_own && !is_too_old ? sm80_for(major, minor, name != sm80().name) : target_named(name);
  const GpuCard* card = find_gpu_card(device);
  const bool has_rates =
      card != nullptr && card->major == target.major && card->minor == target.minor;
  return has_rates ? with_rates_of(target, *card) : target;
}

}  // namespace coda::gpu
