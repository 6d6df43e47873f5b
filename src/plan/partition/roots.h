// SPDX-License-Identifier: Apache-2.0
// The values that the programs of a joint graph must compute in any case: operands of GEMMs and
// calls, results, and reductions of tiles.
#pragma once

#include <set>
#include <vector>

#include "rewrite/joint.h"

namespace coda {

struct Roots {
  std::set<int> forward_stores;  // tensors that the forward writes
  std::set<int> backward_stores;
  std::set<int> reductions;         // row and column reductions of tensors
  std::set<int> forward_needs;      // forward tensors that backward GEMMs and calls read
  std::set<int> backward_operands;  // those of them that a program stores
};

// `live`: nodes that the results depend on. `fuse` false: GEMMs only store. Error if a gradient is
// an input of the graph.
Roots find_roots(const JointGraph& joint, const std::vector<bool>& live, bool fuse);

}  // namespace coda
