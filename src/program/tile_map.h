// SPDX-License-Identifier: Apache-2.0
// Maps the values of a program to tiles: which values depend on a tile, which share a tile space,
// and which pairs represent a value of twice the base width. Every value that is twice as wide as
// its space has exactly one pairing.
#pragma once

#include <vector>

#include "coda/program.h"

namespace coda::program {

struct TileMap {
  // Per step: whether it is a tile or derived from one. Other values are vectors and scalars, which
  // are equal for all tiles.
  std::vector<char> on_tile;
  // Per step: the group of the pairs that represent its value in a tile, if it is twice as wide as
  // the space; else 0.
  std::vector<Dim> pairing;
  // Per step: whether the value has one column per group of columns (the result of reduce_group).
  std::vector<char> grouped;
  // Per step: its tile space; -1 for loads, constants and vectors of tile programs, which are
  // listed in the spaces that use them.
  std::vector<int> space;
  std::vector<TileSpace> spaces;
};

// Requires steps that are valid one by one (find_problems). Throws Problem if they do not fit
// together in tiles.
TileMap map_tiles(const Program& program);

}  // namespace coda::program
