// SPDX-License-Identifier: Apache-2.0
// How many rows of a tile a thread of a kernel without a product has in flight.
#pragma once

#include <vector>

#include "coda/program.h"

namespace coda::gpu {

struct TileRows {
  int in_flight = 1;
  bool leaves_bytes = false;  // 8-bit copies or magnitudes, and no largest magnitude of a block
  bool turns_bytes = false;   // stores bytes by columns, whose rows are joined
};

// `pieces`: 16-byte loads of a row.
TileRows choose_tile_rows(const Program& program, const std::vector<int>& steps, int pieces);

}  // namespace coda::gpu
