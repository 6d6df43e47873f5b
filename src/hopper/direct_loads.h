// SPDX-License-Identifier: Apache-2.0
// Tensors that a tile space's threads load themselves, as text of its CUDA struct: a chunk ahead of
// their use, plainly where a sub-tile is wholly inside (device/direct_pairs.cuh).
#pragma once

#include <string>

#include "hopper/function_text.h"
#include "hopper/space_places.h"

namespace coda::hopper {

// Refers to what it is made of, which outlives it.
class DirectLoads {
 public:
  DirectLoads(const ProgramSizes& sizes, SpacePlaces& places, LaunchArguments& arguments)
      : sizes_(sizes), places_(places), arguments_(arguments) {}

  // Plane `plane` of load i as field `name` of SubTile. `rows` are the tensor's rows for the
  // thread's two, `value` is how a pair is loaded that may lie partly outside. Returns the text of
  // a chunk's pair.
  std::string add(int i, int plane, const std::string& name, const std::string& value,
                  const std::string (&rows)[2]);
  bool empty() const { return partly_.empty(); }

  std::string fields() const { return fields_.text(); }  // of SubTile
  std::string function_text() const;                     // load_ahead, which the others call
  std::string begin() const;                             // when the sub-tile begins
  std::string ahead() const;                             // when a chunk begins: the next one's

 private:
  const ProgramSizes& sizes_;
  SpacePlaces& places_;
  LaunchArguments& arguments_;
  Body fields_{4};
  Body begin_{4};
  Body plain_{6};
  Body partly_{8};
};

}  // namespace coda::hopper
