// SPDX-License-Identifier: Apache-2.0
// The text of one tile space whose tiles are loaded from memory or made of vectors: a struct as
// device/kernels/tile_kernel.cuh describes it, and how many blocks its tiles are.
#pragma once

#include <cstdint>
#include <string>

#include "hopper/codegen/argument_text.h"
#include "program/tile_map.h"

namespace coda::hopper {

struct TileSpaceText {
  std::string name;    // of the struct: Space0
  std::string text;    // its definition
  int64_t blocks = 0;  // of kTileThreads threads
  bool reduces_columns = false;
};

// Throws Error, naming the step, if a group of columns is not what a warp can hold.
TileSpaceText tile_space_text(const Program& program, const program::TileMap& map, int space,
                              const DimValues& sizes, ArgumentText& arguments);

}  // namespace coda::hopper
