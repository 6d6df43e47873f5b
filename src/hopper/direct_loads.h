// SPDX-License-Identifier: Apache-2.0
// Tensors that a tile space's threads load themselves, as text of its CUDA struct: a chunk ahead of
// their use, plainly where a sub-tile is wholly inside (device/direct_pairs.cuh). What all
// sub-tiles of the same rows read is loaded in the first of them and kept.
#pragma once

#include <string>

#include "hopper/function_text.h"
#include "hopper/space_places.h"

namespace coda::hopper {

// Refers to what it is made of, which outlives it.
class DirectLoads {
 public:
  // `kept_for`: sub-tiles beside each other in a tile for which values are kept; 1: not kept.
  DirectLoads(const ProgramSizes& sizes, SpacePlaces& places, LaunchArguments& arguments,
              uint32_t kept_for)
      : sizes_(sizes), places_(places), arguments_(arguments), kept_for_(kept_for) {}

  // Plane `plane` of load i as field `name`. `rows` are the tensor's rows for the
  // thread's two, `value` is how a pair is loaded that may lie partly outside. Returns the text of
  // a chunk's pair.
  std::string add(int i, int plane, const std::string& name, const std::string& value,
                  const std::string (&rows)[2]);
  bool empty() const { return partly_.empty(); }

  std::string fields() const { return fields_.text(); }          // of SubTile
  std::string row_fields() const { return row_fields_.text(); }  // of Rows
  std::string function_text() const;                             // which the others call
  std::string begin() const;                                     // when the sub-tile begins
  std::string ahead() const;  // when a chunk begins: the next one's

 private:
  bool is_kept() const { return kept_for_ > 1; }
  std::string name() const { return is_kept() ? "load_kept" : "load_ahead"; }
  std::string is_plain() const { return is_kept() ? "kept_is_plain" : "is_plain"; }

  const ProgramSizes& sizes_;
  SpacePlaces& places_;
  LaunchArguments& arguments_;
  const uint32_t kept_for_;
  Body fields_{4};
  Body row_fields_{4};
  Body begin_{4};
  Body plain_{6};
  Body partly_{8};
};

}  // namespace coda::hopper
