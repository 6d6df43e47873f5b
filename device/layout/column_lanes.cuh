// SPDX-License-Identifier: Apache-2.0
// The mapping from lanes to columns while a sub-tile is reduced along its rows
// (device/epilogue/column_partial.cuh). Pure arithmetic, tested on the host.
#pragma once

#include "device/layout/space.cuh"

namespace coda::device {

// Distances between lanes that hold the same columns of other rows. The first two exchanges halve a
// lane's columns from four to one; the last one leaves a copy in both lanes.
inline constexpr u32 kColumnExchange[3] = {16, 8, 4};

// The column of a fragment that a lane ends with.
constexpr u32 column_of_lane(u32 lane) { return lane / 16 * 8 + lane % 4 * 2 + lane / 8 % 2; }

// Of the two copies, each lane keeps every other fragment: the `i`-th (0 or 1) that it keeps.
constexpr u32 fragment_of_lane(u32 lane, u32 i) { return 2 * i + lane / 4 % 2; }

}  // namespace coda::device
