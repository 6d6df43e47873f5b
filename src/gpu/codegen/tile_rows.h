// SPDX-License-Identifier: Apache-2.0
// Chooses how many rows of a tile a thread has in flight in a kernel without a GEMM.
#pragma once

#include <vector>

#include "coda/program.h"

namespace coda::gpu {

struct TileRows {
  int in_flight = 1;
  bool leaves_bytes = false;  // stores 8-bit copies or magnitudes, and no per-block maximum
  bool turns_bytes = false;   // stores bytes by columns, which joins rows
};

// `pieces`: number of 16-byte loads per row.
TileRows choose_tile_rows(const Program& program, const std::vector<int>& steps, int pieces);

}  // namespace coda::gpu
