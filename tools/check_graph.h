// SPDX-License-Identifier: Apache-2.0
// coda check for a graph: compares its compiled plan and the derived backward with the graph in
// float64.
#pragma once

#include <string>

#include "coda/graph_text.h"

namespace coda::tools {

struct GraphCheck {
  DimValues sizes{};      // empty: defaults, if inputs have all symbols
  std::string backend{};  // "cpu", "gpu"; empty: all available
  std::string target{};   // of the GPU's kernels
  uint64_t seed = 1;
  bool backward = true;
  bool json = false;
};
// Throws Error if something is wrong.
void check_graph(const NamedGraph& named, const GraphCheck& how);

}  // namespace coda::tools
