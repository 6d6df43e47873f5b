// SPDX-License-Identifier: Apache-2.0
// How the values of a program lie in tiles: which depend on a tile at all, which share a tile
// space, and by which pairs a value of twice the base width lies in its tile. Every value that is
// twice as wide as its space has exactly one pairing.
#pragma once

#include <vector>

#include "coda/program.h"

namespace coda::program {

struct TileMap {
  // Per step: it is a tile, or comes from one. Other values are vectors and scalars, the same for
  // all tiles.
  std::vector<char> on_tile;
  // Per step: the group of the pairs through which its value, twice as wide as the space, lies in a
  // tile; else 0.
  std::vector<Dim> pairing;
  // Per step: the value has one column for a group of columns (reduce_group's result).
  std::vector<char> grouped;
  // Per step: its tile space; -1 for loads, constants and tile programs' vectors, which are listed
  // where they are used.
  std::vector<int> space;
  std::vector<TileSpace> spaces;
};

// Needs: steps that are well formed one by one (see find_problem). Throws Problem if they do not
// fit together in tiles.
TileMap map_tiles(const Program& program);

}  // namespace coda::program
