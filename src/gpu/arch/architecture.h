// SPDX-License-Identifier: Apache-2.0
// What a GPU's architecture has, as a value: another architecture is another row here and its own
// instructions under device/. What device code must know too comes from there.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/layout/shared_layout.cuh"

namespace coda::gpu {

struct Architecture {
  std::string_view name;  // as NVRTC is asked for it
  int major = 0;          // compute capability
  int minor = 0;
  std::string_view gpus;         // for people
  uint32_t multiprocessors = 0;  // of those GPUs, and of the one that the shipped table is of
  uint32_t registers = 0;        // that a consumer warpgroup's thread may have
};

inline constexpr Architecture kSm90a{.name = "sm_90a",
                                     .major = 9,
                                     .minor = 0,
                                     .gpus = "H100, H200",
                                     .multiprocessors = 132,
                                     .registers = device::GemmConfig{}.consumer_registers};

}  // namespace coda::gpu
