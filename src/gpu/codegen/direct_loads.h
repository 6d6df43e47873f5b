// SPDX-License-Identifier: Apache-2.0
// Tensors that a tile space's threads load themselves, as text of its CUDA struct: a fragment ahead
// of their use, plainly where a sub-tile is wholly inside (device/epilogue/direct_pairs.cuh); or,
// what all sub-tiles of the same rows read, once a tile under its mainloop, a fragment of the
// tables under each of a few K blocks. Then nobody waits for them: a table's rows lie anywhere in
// memory, and a warp's load of eight rows keeps the load unit for eight cycles.
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
  std::string row[2];  // the tensor's rows for the thread's two
  std::string value;   // how a pair is loaded that may lie partly outside
};

// Refers to what it is made of, which outlives it.
class DirectLoads {
 public:
  // `is_kept`: in Rows, once a tile; the rows' texts are those of its only block of rows. Else in
  // SubTile.
  DirectLoads(const ProgramSizes& sizes, SpacePlaces& places, LaunchArguments& arguments,
              bool is_kept)
      : sizes_(sizes),
        places_(places),
        arguments_(arguments),
        is_kept_(is_kept),
        owner_(is_kept ? "rows" : "sub"),
        begin_(is_kept ? 6 : 4) {}

  // Returns the text of a fragment's pair.
  std::string add(const DirectLoad& load);
  bool empty() const { return partly_.empty(); }

  std::string fields() const { return fields_.text(); }  // of Rows or SubTile
  std::string function_text() const;  // load_tables, or load_ahead, which these call:
  std::string begin() const;          // when the sub-tile begins
  std::string ahead() const;          // when a fragment begins: the next one's

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
