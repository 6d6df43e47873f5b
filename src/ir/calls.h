// SPDX-License-Identifier: Apache-2.0
// What passes ask of an opaque call's node: whether it adds its result to an operand.
#pragma once

#include "coda/graph.h"
#include "coda/operation.h"

namespace coda {

// The call's operation can add its result to one operand more.
inline bool can_add(const Node& n) {
  return n.op == Op::opaque && n.operation != nullptr && n.operation->can_add;
}
// The call has that operand, its last.
inline bool adds(const Node& n) {
  return can_add(n) && n.operands.size() > n.operation->operands.size();
}

}  // namespace coda
