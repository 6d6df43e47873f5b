// SPDX-License-Identifier: Apache-2.0
// Finds the values of a joint graph that can be computed and consumed in blocks of rows: the widest
// value that the backward computes without the upstream gradient (of a loss: the logits and their
// gradient), and the values that read it. Only the dependences of nodes matter; there is no code
// for losses.
#pragma once

#include <string>
#include <vector>

#include "coda/compile_request.h"

namespace coda {

struct JointGraph;

struct RowBlockValues {
  std::string symbol;       // of the rows
  int widest = -1;          // one of `values`; -1: there are none, and `refusal` says why
  std::vector<int> values;  // tensors [symbol, any], read only by each other, GEMMs and reductions
  std::vector<int> sums;  // GEMMs that sum such tensors over all rows (a weight's gradient), or the
                          // multiple of such a GEMM if only that reads it
  bool may_write_gradients = false;  // see may_be_gradient
  // Nodes that read `values`, and backward nodes that they need. They run in the forward, where the
  // upstream gradient is not known yet.
  std::vector<int> early;
  std::string refusal;

  // Whether the forward writes this node into a gradient of the caller, or adds it there. If a
  // gradient equals another early value, the backward copies it.
  bool may_be_gradient(int id) const;
};

// `gradients`: nodes of the joint graph. `sizes`: the symbols' values; with them the width of each
// value is known.
RowBlockValues find_row_block_values(const JointGraph& joint, const CompileRequest& request,
                                     const std::vector<int>& gradients, const DimValues& sizes);

}  // namespace coda
