// SPDX-License-Identifier: Apache-2.0
// Runs tiles' epilogues: their phases, over row strips that fit the first-level cache. One for each
// thread, whose memory serves all its tiles.
#pragma once

#include <optional>
#include <vector>

#include "cpu/chain_run.h"
#include "cpu/phases.h"
#include "cpu/tile_context.h"
#include "cpu/tile_memory.h"

namespace coda::cpu {

class Epilogue {
 public:
  explicit Epilogue(const Phases& phases);

  void run(const TileContext& tile);

 private:
  // What is the same for all strips of a tile.
  struct Bound {
    // Of each operation of a phase, or of each sum over columns: which columns of memory the tile's
    // are.
    std::vector<std::vector<ColumnRun>> runs;
    std::optional<ChainRun> chain;
  };

  const Phases& phases_;
  std::vector<Bound> bound_;
};

}  // namespace coda::cpu
