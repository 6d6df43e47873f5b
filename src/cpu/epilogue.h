// SPDX-License-Identifier: Apache-2.0
// Runs the epilogues of tiles: one operation after another over strips of rows whose planes fit
// into the nearest caches. There is one Epilogue per thread, which reuses its memory for all tiles.
#pragma once

#include <vector>

#include "cpu/tile_context.h"
#include "cpu/tile_memory.h"
#include "cpu/tile_program.h"

namespace coda::cpu {

class Epilogue {
 public:
  // `ops` with strip planes (share_strip_planes); they must outlive the epilogue.
  explicit Epilogue(const std::vector<TileOp>& ops) : ops_(ops), runs_(ops.size()) {}

  void run(const TileContext& tile);

 private:
  const std::vector<TileOp>& ops_;
  std::vector<std::vector<ColumnRun>> runs_;  // of each operation, in the current tile
};

}  // namespace coda::cpu
