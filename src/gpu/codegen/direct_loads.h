// SPDX-License-Identifier: Apache-2.0
// Emits the loads that a tile space's threads do themselves instead of TMA. A load is issued one
// fragment ahead of its use, without bounds checks if the sub-tile is entirely inside the tensor
// (device/epilogue/direct_pairs.cuh). Tables that all sub-tiles of the same rows read are loaded
// once per tile during the mainloop, one fragment under each of the first K blocks. This hides
// their latency: the rows of a table are scattered in memory, and a warp's load of eight rows
// occupies the load unit for eight cycles.
#pragma once

#include <string>

#include "gpu/codegen/function_text.h"
#include "gpu/codegen/space_places.h"

namespace coda::gpu {

// A load of a tensor by threads.
struct DirectLoad {
  int step = -1;
  int plane = 0;
  std::string name;
  std::string row[2];  // the tensor's rows for the thread's two rows
  std::string value;   // how to load a pair that may be partly outside
};

// Keeps references to the constructor's arguments.
class DirectLoads {
 public:
  // `is_kept`: loads are kept in Rows, once per tile, with row expressions for the tile's only
  // block of rows. Otherwise they are fields of SubTile.
  DirectLoads(const ProgramSizes& sizes, SpacePlaces& places, LaunchArguments& arguments,
              bool is_kept)
      : sizes_(sizes),
        places_(places),
        arguments_(arguments),
        is_kept_(is_kept),
        owner_(is_kept ? "rows" : "sub"),
        begin_(is_kept ? 6 : 4) {}

  // Adds a load and returns the expression that reads its pair.
  std::string add(const DirectLoad& load);
  bool empty() const { return partly_.empty(); }

  std::string fields() const { return fields_.text(); }  // of Rows or SubTile
  std::string function_text() const;  // load_tables or load_ahead, which the lines below call
  std::string begin() const;          // called at the start of a sub-tile
  std::string ahead() const;          // called at the start of a fragment, for the next one

 private:
  const ProgramSizes& sizes_;
  SpacePlaces& places_;
  LaunchArguments& arguments_;
  const bool is_kept_;
  const std::string owner_;
  Body fields_{4};
  Body begin_;
  Body plain_{6};
  Body partly_{8};
};

}  // namespace coda::gpu
