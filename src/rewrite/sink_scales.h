// SPDX-License-Identifier: Apache-2.0
// The pass that makes epilogues possible: per-row factors, and rank-one terms that are not ready,
// move behind matrix products and past every row-wise linear operation on the way; per-column
// factors along K go where the choices say. Needs: matmuls with one segment (others are kept as
// they are). Promises: equal values; frozen nodes stay themselves.
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
