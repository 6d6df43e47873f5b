// SPDX-License-Identifier: Apache-2.0
// Lowers one tile space of a verified program for given sizes. The result does not depend on the
// tile shape, which is chosen later.
#pragma once

#include "cpu/tile_gemm.h"
#include "cpu/tile_program.h"
#include "cpu/vector_program.h"
#include "program/tile_map.h"

namespace coda::cpu {

// Adds the vectors that the tiles use to `vectors`.
TileProgram lower_tile_space(const Program& program, const program::TileMap& map, int space,
                             const DimValues& sizes, GemmLibrary library, VectorProgram& vectors);

}  // namespace coda::cpu
