// SPDX-License-Identifier: Apache-2.0
// Which choices of a plan are the same choice in another layer: candidates whose surroundings look
// alike are flipped together, so that the search does not grow with the number of layers.
#pragma once

#include <vector>

#include "rewrite/joint.h"

namespace coda {

// Class numbers from 0, one a candidate, in the candidates' order.
struct CandidateClasses {
  std::vector<int> column_factors;
  std::vector<int> row_factors;
};
CandidateClasses classify(const JointGraph& joint);

}  // namespace coda
