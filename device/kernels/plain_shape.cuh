// SPDX-License-Identifier: Apache-2.0
// How plain kernels divide their work (plain_product.cuh, plain_groups.cuh): what the host knows of
// them to launch them.
#pragma once

#include "device/types.cuh"

namespace coda::device {

inline constexpr u32 kPlainThreads = 256;  // of a block
inline constexpr u32 kPlainTile = 64;      // rows and columns of a product that a block makes
inline constexpr u32 kGroupWarps = 8;      // of a block, which each sum a group

}  // namespace coda::device
