// SPDX-License-Identifier: Apache-2.0
// What the programs of a joint graph must make, whatever else they do: the operands of products and
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
  std::set<int> forward_needs;      // forward tensors that backward products and calls read
  std::set<int> backward_operands;  // those of them that some program writes
};

// `live`: nodes that the graph's results reach. `fuse` false: products only store. Error if a
// gradient is an input of the graph.
Roots find_roots(const JointGraph& joint, const std::vector<bool>& live, bool fuse);

}  // namespace coda
