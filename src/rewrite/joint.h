// SPDX-License-Identifier: Apache-2.0
// The rewriting as a whole: sink_scales and merge_gemms on the forward until nothing changes,
// differentiate, the same on the joint graph; the forward's nodes do not change after its backward
// was derived (asserted).
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "coda/compile_request.h"
#include "rewrite/choices.h"
#include "rewrite/recompute_layers.h"
#include "rewrite/row_block_values.h"

namespace coda {

struct JointGraph {
  std::unique_ptr<Graph> graph;  // with all results of its calls
  std::vector<int> outputs;      // forward roots, in the request's order
  // Outputs whose gradient is given; the caller stores them until the backward.
  std::set<int> seeded;
  std::vector<int> gradients;  // in the request's order; -1: zero (the outputs do not depend on it)
  std::vector<bool> forward;   // by id: nodes that the forward reaches, and those that run early
  Candidates candidates;
  RowBlockValues row_blocks;  // empty if they were not accepted
  LayerStarts starts;         // of the recomputed layers, and of what follows them
};

// Whether to use joint.row_blocks. If so, the values that can be computed in blocks of rows count
// as forward.
using AcceptRowBlocks = std::function<bool(const JointGraph& joint)>;

// `rewritten` false: the graph is only differentiated (the baseline without sunk scales). Without
// `accept`, no values for blocks of rows are looked for. The backward recomputes the layers that
// start from `starts`, nodes of `graph`. Per-row vectors in `given` become inputs of these names
// after the differentiation.
JointGraph rewrite_jointly(const Graph& graph, const CompileRequest& request,
                           const Choices& choices, bool rewritten, const DimValues& sizes = {},
                           const AcceptRowBlocks& accept = {},
                           const std::vector<NamedValue>& given = {},
                           const LayerStarts& starts = {});

}  // namespace coda
