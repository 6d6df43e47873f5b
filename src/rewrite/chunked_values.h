// SPDX-License-Identifier: Apache-2.0
// Which values of a joint graph can be made and consumed in chunks of rows: the widest that the
// backward makes without the upstream gradient (of a loss: its logits and their gradient), with
// what reads them. Knows nothing of losses: it follows which nodes depend on what.
#pragma once

#include <string>
#include <vector>

#include "coda/compile_request.h"

namespace coda {

struct JointGraph;

struct ChunkedValues {
  std::string symbol;       // of the rows
  int widest = -1;          // of `values`; -1: there are none, `refusal` says why
  std::vector<int> values;  // tensors [symbol, any] that only one another, products and reductions
                            // read
  std::vector<int> sums;    // products that read them over all rows (a weight's gradient), or the
                            // multiple of such a product that alone reads it
  bool may_write_gradients = false;  // those that are: see may_be_gradient
  std::vector<int> early;  // what reads them, and backward nodes that this needs: it runs in the
                           // forward, where the upstream gradient is not known yet
  std::string refusal;

  // The forward writes it into the caller's gradient that it is, or is added to. A gradient that
  // equals another early value is a copy, made by the backward.
  bool may_be_gradient(int id) const;
};

// Of a joint graph whose gradients are `gradients`; `sizes` say what is wide.
ChunkedValues find_chunked_values(const JointGraph& joint, const CompileRequest& request,
                                  const std::vector<int>& gradients, const DimValues& sizes);

}  // namespace coda
