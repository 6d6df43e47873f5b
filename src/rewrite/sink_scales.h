// SPDX-License-Identifier: Apache-2.0
// The pass that makes epilogues possible. It moves per-row factors, and rank-one terms that need a
// statistic, from before a matrix product to after it, past every row-wise linear operation on the
// way. Per-column factors along K move as the choices say.
// It changes only matmuls with one segment, and no frozen nodes. Results have the same values but
// for rounding.
#pragma once

#include <vector>

#include "coda/graph.h"
#include "rewrite/choices.h"

namespace coda {

struct SinkScalesOptions {
  const Choices* choices = nullptr;
  // Nodes that must not change: the forward, when its backward is rewritten. Empty: none (the
  // forward itself is rewritten, and candidates are recorded).
  std::vector<bool> frozen;
};

// The roots rewritten, in their order. `candidates` is extended (forward) or read (backward: which
// row factors are pinned).
std::vector<int> sink_scales(Graph& graph, const std::vector<int>& roots,
                             const SinkScalesOptions& options, Candidates& candidates);

}  // namespace coda
