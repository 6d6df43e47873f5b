// SPDX-License-Identifier: Apache-2.0
// Computes how many calls a burst on the GPU has, and how many of these one CUDA graph has.
#pragma once

namespace coda::measure {

struct BurstShape {
  int calls = 1;     // in all
  int captured = 0;  // in a graph, which runs calls / captured times; 0: launched one by one
};

// Calls of `call_ms` each for about `ms`. `sets`: of tensors, which a graph goes through in turn,
// each equally often, so that none is found in L2 when the graph runs again; 0: no graph.
BurstShape burst_shape(double ms, double call_ms, unsigned sets);

}  // namespace coda::measure
