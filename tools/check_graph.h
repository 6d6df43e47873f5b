// SPDX-License-Identifier: Apache-2.0
// coda check of a graph: its compiled plan, and the derived backward, against the graph in float64.
#pragma once

#include <string>

#include "coda/graph_text.h"

namespace coda::tools {

struct GraphCheck {
  DimValues sizes{};      // empty: usual ones, where all symbols are sizes of inputs
  std::string backend{};  // "cpu", "gpu"; empty: all that there are
  uint64_t seed = 1;
  bool backward = true;
  bool json = false;
};
// Throws Error where something is wrong.
void check_graph(const NamedGraph& named, const GraphCheck& how);

}  // namespace coda::tools
