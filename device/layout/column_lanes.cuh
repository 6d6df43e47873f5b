// SPDX-License-Identifier: Apache-2.0
// Which lane of a warp holds which column while a sub-tile is reduced along its rows
// (device/epilogue/column_partial.cuh). Pure arithmetic, tested on the host.
#pragma once

#include "device/layout/space.cuh"

namespace coda::device {

// Lanes so far apart hold the same columns of other rows. The first two exchanges halve what a lane
// holds, from four columns of a fragment to one; the last leaves a copy in both.
inline constexpr u32 kColumnExchange[3] = {16, 8, 4};

// Which column of a fragment a lane ends with.
constexpr u32 column_of_lane(u32 lane) { return lane / 16 * 8 + lane % 4 * 2 + lane / 8 % 2; }

// Of the copies each lane keeps every other fragment: the `i`-th (0 or 1) that it keeps.
constexpr u32 fragment_of_lane(u32 lane, u32 i) { return 2 * i + lane / 4 % 2; }

}  // namespace coda::device
