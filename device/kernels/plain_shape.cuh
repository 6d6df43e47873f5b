// SPDX-License-Identifier: Apache-2.0
// The work distribution of plain kernels (plain_product.cuh, plain_groups.cuh), shared with the
// host, which launches them.
#pragma once

#include "device/types.cuh"

namespace coda::device {

inline constexpr u32 kPlainThreads = 256;  // per block
inline constexpr u32 kPlainTile = 64;      // rows and columns of the result per block
inline constexpr u32 kGroupWarps = 8;      // per block, one group each

}  // namespace coda::device
