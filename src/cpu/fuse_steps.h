// SPDX-License-Identifier: Apache-2.0
// Which steps of a tile space are computed together, decided by the program alone: a product that
// only a sum reads is added as it is multiplied, a negated term is subtracted, and a value that is
// rounded only to be stored is rounded by the store. A product that the program rounds to fp32 is
// rounded, and then added.
#pragma once

#include <vector>

#include "cpu/tile_program.h"
#include "program/tile_map.h"

namespace coda::cpu {

struct StepForm {
  enum class Kind : uint8_t {
    as_written,
    nothing,  // a part of its reader
    operand,  // the value of operands[0]
    sum,      // `arithmetic` of `operands`
  };
  Kind kind = Kind::as_written;
  Arithmetic arithmetic = Arithmetic::add;
  std::vector<int> operands;
};

// One form for each step of the program; those outside the space are as written.
std::vector<StepForm> fuse_steps(const Program& program, const program::TileMap& map, int space);

}  // namespace coda::cpu
