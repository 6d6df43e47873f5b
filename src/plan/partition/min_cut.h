// SPDX-License-Identifier: Apache-2.0
// Finds the cheapest set of values to keep in memory such that all needed values can be computed
// from them: a minimum vertex cut between values that cannot be recomputed (GEMMs, inputs) and the
// needed ones.
#pragma once

#include <utility>
#include <vector>

namespace coda {

struct CutProblem {
  int vertices = 0;
  std::vector<double> capacity;            // per vertex; kNever if it must not be kept
  std::vector<std::pair<int, int>> edges;  // operand -> value
  std::vector<int> sources;                // cannot be recomputed
  std::vector<int> needs;
};
inline constexpr double kNever = 1e30;

// The vertices of a minimum cut; of equal cuts, the one nearest to the needed values.
std::vector<int> minimum_cut(const CutProblem& problem);

}  // namespace coda
