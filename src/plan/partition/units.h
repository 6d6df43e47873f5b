// SPDX-License-Identifier: Apache-2.0
// The fixed points of a plan: matrix products (those that share an operand joined into one) and
// opaque calls, in the order in which they run. Everything else finds its place around them.
#pragma once

#include <vector>

#include "ir/readers.h"
#include "rewrite/joint.h"

namespace coda {

struct Unit {
  std::vector<int>
      nodes;  // matmuls, or one opaque call; none: the boundary between forward and backward
  bool is_gemm = false;
  bool is_backward = false;
  bool is_gradient = false;     // of the backward, or of what runs early
  bool contracts_rows = false;  // a weight's gradient
  bool runs_again = false;      // of the forward, for the backward (rewrite/run_again.h)
};

struct UnitOrder {
  std::vector<Unit> units;
  int boundary = 0;          // index of the boundary; units before it are the forward's
  std::vector<int> unit_of;  // by node; -1 where the node is no unit's
};

// `live`: nodes that the roots reach; `readers`: of these.
UnitOrder order_units(const JointGraph& joint, const std::vector<bool>& live,
                      const Readers& readers, bool join);

}  // namespace coda
