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
#include "rewrite/chunked_values.h"
#include "rewrite/run_again.h"

namespace coda {

struct JointGraph {
  std::unique_ptr<Graph> graph;  // with all results of its calls
  std::vector<int> outputs;      // forward roots, in the request's order
  // Outputs whose gradient is given; the caller stores them until the backward.
  std::set<int> seeded;
  std::vector<int> gradients;  // in the request's order; -1: zero (the outputs do not depend on it)
  std::vector<bool> forward;   // by id: nodes that the forward reaches, and those that run early
  Candidates candidates;
  ChunkedValues chunked;  // that were accepted
  LayerStarts starts;     // of the layers that are run again, and of what follows them
};

// Whether what joint.chunked says shall be done: what can be made in chunks of rows then counts as
// forward.
using AcceptChunks = std::function<bool(const JointGraph& joint)>;

// `rewritten` false: the graph is only differentiated (the baseline without sunk scales). Chunks of
// rows are looked for if there is who accepts them. Layers that start from `starts`, nodes of
// `graph`, are run again by the backward. Per-row vectors in `given` become inputs of
// their names behind the differentiation.
JointGraph rewrite_jointly(const Graph& graph, const CompileRequest& request,
                           const Choices& choices, bool rewritten, const DimValues& sizes = {},
                           const AcceptChunks& accept = {},
                           const std::vector<NamedValue>& given = {},
                           const LayerStarts& starts = {});

}  // namespace coda
