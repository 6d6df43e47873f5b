// SPDX-License-Identifier: Apache-2.0
// The fixed points of a plan: GEMMs (joined if they share an operand) and opaque calls, in
// execution order. All other values are placed relative to them.
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
  bool is_gradient = false;     // belongs to the backward, or to a part of it that runs early
  bool contracts_rows = false;  // a weight's gradient
  bool runs_again = false;  // recomputes the forward in the backward (rewrite/recompute_layers.h)
};

struct UnitOrder {
  std::vector<Unit> units;
  int boundary = 0;          // index of the boundary; earlier units belong to the forward
  std::vector<int> unit_of;  // by node; -1 if it belongs to no unit
};

// `live`: nodes that the roots depend on; `readers`: of these nodes.
UnitOrder order_units(const JointGraph& joint, const std::vector<bool>& live,
                      const Readers& readers, bool join);

}  // namespace coda
