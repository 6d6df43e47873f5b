// SPDX-License-Identifier: Apache-2.0
// Which choices of a plan are the same choice in another layer: candidates whose surroundings look
// alike are flipped together, so that the search does not grow with the number of layers.
#pragma once

#include <string>
#include <vector>

#include "rewrite/joint.h"

namespace coda {

// One key a candidate, in the candidates' order: equal ones look alike, in any model.
struct CandidateClasses {
  std::vector<std::string> column_factors;
  std::vector<std::string> row_factors;
};
CandidateClasses classify(const JointGraph& joint);

}  // namespace coda
