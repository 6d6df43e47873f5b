// SPDX-License-Identifier: Apache-2.0
// Few rows per thread mean few registers, so more blocks share a multiprocessor and some compute
// while others load. That was faster than more loads in flight within a thread
// (lab/notebook/hopper.md). If columns are reduced, a warp iterates over its rows with about eight
// 16-byte loads per thread in flight. Kernels that only reduce rows have little work per row but a
// fixed cost per set of rows.
#include "gpu/codegen/tile_rows.h"

#include "device/tiles/tile_position.cuh"
#include "program/step_table.h"

namespace coda::gpu {

TileRows choose_tile_rows(const Program& program, const std::vector<int>& steps, int pieces) {
  TileRows rows;
  bool is_wide = false;
  bool stores_tiles = false;
  bool sums_columns = false;
  for (int i : steps) {
    const Step& s = program.steps[i];
    const auto bytes = [&] { return size_of(program.tensors[s.tensor()].dtype); };
    stores_tiles = stores_tiles || program::is_tile_store(s);
    sums_columns = sums_columns || program::is_column_partial(s);
    rows.turns_bytes = rows.turns_bytes || (program::is_transposed_store(s) && bytes() == 1);
    rows.leaves_bytes = rows.leaves_bytes || program::is_maximum(s) || rows.turns_bytes;
    is_wide = is_wide || (program::is_tile_load(s) && bytes() > 2);
  }
  if (sums_columns) {
    rows.in_flight = pieces <= 2 ? 4 : pieces <= 4 ? 2 : 1;
  } else {
    rows.in_flight = is_wide || pieces > 4 ? 1 : stores_tiles || pieces > 2 ? 2 : 4;
  }
  return rows;
}

}  // namespace coda::gpu
