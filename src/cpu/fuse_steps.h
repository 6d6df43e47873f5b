// SPDX-License-Identifier: Apache-2.0
// Decides, from the program alone, which steps of a tile space are computed together: a product
// that only a sum reads becomes a multiply-add, a negated term becomes a subtraction, and a value
// that is rounded only to be stored is rounded by the store. A product that the program explicitly
// rounds to fp32 is rounded before it is added.
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

// One form per step of the program; steps outside the space keep their written form.
std::vector<StepForm> fuse_steps(const Program& program, const program::TileMap& map, int space);

}  // namespace coda::cpu
