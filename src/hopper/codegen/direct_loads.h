// SPDX-License-Identifier: Apache-2.0
// Tensors that a tile space's threads load themselves, as text of its CUDA struct: a fragment ahead
// of their use, plainly where a sub-tile is wholly inside (device/epilogue/direct_pairs.cuh); or,
// what all sub-tiles of the same rows read, once a tile under its mainloop, a fragment of the
// tables under each of a few K blocks. Then nobody waits for them: a table's rows lie anywhere in
// memory, and a warp's load of eight rows keeps the load unit for eight cycles.
#pragma once

#include <string>

#include "hopper/codegen/function_text.h"
#include "hopper/codegen/space_places.h"

namespace coda::hopper {

// A load of a tensor by threads.
struct DirectLoad {
  int step = -1;
  int plane = 0;
  std::string name;
  std::string row[2];  // the tensor's rows for the thread's two
  std::string value;   // how a pair is loaded that may lie partly outside
};

// Both refer to what they are made of, which outlives it.
class DirectLoads {
 public:
  DirectLoads(const ProgramSizes& sizes, SpacePlaces& places, LaunchArguments& arguments)
      : sizes_(sizes), places_(places), arguments_(arguments) {}

  // Returns the text of a fragment's pair.
  std::string add(const DirectLoad& load);
  bool empty() const { return partly_.empty(); }

  std::string fields() const { return fields_.text(); }  // of SubTile
  std::string function_text() const;                     // load_ahead, which the others call
  std::string begin() const;                             // when the sub-tile begins
  std::string ahead() const;                             // when a fragment begins: the next one's

 private:
  const ProgramSizes& sizes_;
  SpacePlaces& places_;
  LaunchArguments& arguments_;
  Body fields_{4};
  Body begin_{4};
  Body plain_{6};
  Body partly_{8};
};

// The rows' texts are those of the tile's first block of rows: it has no other.
class KeptLoads {
 public:
  KeptLoads(const ProgramSizes& sizes, SpacePlaces& places, LaunchArguments& arguments)
      : sizes_(sizes), places_(places), arguments_(arguments) {}

  std::string add(const DirectLoad& load);

  bool empty() const { return partly_.empty(); }

  std::string fields() const { return fields_.text(); }  // of Rows
  std::string function_text() const;                     // load_tables

 private:
  const ProgramSizes& sizes_;
  SpacePlaces& places_;
  LaunchArguments& arguments_;
  Body fields_{4};
  Body begin_{6};
  Body plain_{6};
  Body partly_{8};
};

}  // namespace coda::hopper
