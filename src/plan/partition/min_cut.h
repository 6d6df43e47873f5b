// SPDX-License-Identifier: Apache-2.0
// The cheapest set of values to keep in memory so that all needed ones can be made from them: a
// minimum vertex cut between what cannot be made again (products, inputs) and what is needed.
#pragma once

#include <utility>
#include <vector>

namespace coda {

struct CutProblem {
  int vertices = 0;
  std::vector<double> capacity;            // of a vertex; kNever where it may not be kept
  std::vector<std::pair<int, int>> edges;  // operand -> value
  std::vector<int> sources;                // cannot be made again
  std::vector<int> needs;
};
inline constexpr double kNever = 1e30;

// The vertices of a minimum cut; of equal cuts the one nearest the needs.
std::vector<int> minimum_cut(const CutProblem& problem);

}  // namespace coda
