// SPDX-License-Identifier: Apache-2.0
// The single argument of an emitted kernel: descriptors, addresses, numbers. The host packs it from
// three lists (src/gpu/codegen/kernel_launch.h), so that a launch copies one block.
#pragma once

#include "device/types.cuh"

namespace coda::device {

template <u32 kMaps, u32 kPointers, u32 kNumbers>
struct KernelArguments {
  TensorMap maps[larger(1, kMaps)];
  u64 pointers[larger(1, kPointers)];
  u32 numbers[larger(1, kNumbers)];
};

}  // namespace coda::device
