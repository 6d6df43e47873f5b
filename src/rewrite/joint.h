// SPDX-License-Identifier: Apache-2.0
// The rewriting as a whole: defer and join_sums on the forward until nothing changes,
// differentiate, the same on the joint graph; the forward's nodes do not change after its backward
// was derived (asserted).
#pragma once

#include <memory>
#include <vector>

#include "coda/compile.h"
#include "rewrite/choices.h"

namespace coda {

struct JointGraph {
  std::unique_ptr<Graph> graph;
  std::vector<int> outputs;    // forward roots, in the request's order
  std::vector<int> gradients;  // in the request's order; -1: zero (the outputs do not depend on it)
  std::vector<bool> forward;   // by id: nodes that the forward reaches
  Candidates candidates;
};

// `rewritten` false: the graph is only differentiated (the baseline without deferral).
JointGraph rewrite_jointly(const Graph& graph, const CompileRequest& request,
                           const Choices& choices, bool rewritten);

}  // namespace coda
