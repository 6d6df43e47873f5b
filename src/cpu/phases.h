// SPDX-License-Identifier: Apache-2.0
// How a tile's operations run over a strip: in phases, each a chain or operations that take a whole
// strip one after another (sums over groups of columns, members of pairs that alternate in memory,
// reductions with more than a sum). Values pass from phase to phase in planes of the strip.
#pragma once

#include <vector>

#include "cpu/chain.h"

namespace coda::cpu {

struct Phase {
  std::vector<TileOp> ops;  // for the whole strip each; empty: a chain
  Chain chain;
};

struct Phases {
  std::vector<Phase> phases;
  int strip_planes = 0;  // reused where lifetimes allow
  int slots = 0;
};

Phases split_phases(const TileProgram& program, const ChainMachine& machine);

}  // namespace coda::cpu
