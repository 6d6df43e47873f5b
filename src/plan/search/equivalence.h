// SPDX-License-Identifier: Apache-2.0
// Finds choices that are the same in different layers: candidates with similar surroundings are
// flipped together, so that the search does not grow with the number of layers.
#pragma once

#include <string>
#include <vector>

#include "rewrite/joint.h"

namespace coda {

// One key per candidate, in order; equal keys mean similar surroundings, in any model.
struct CandidateClasses {
  std::vector<std::string> column_factors;
  std::vector<std::string> row_factors;
};
CandidateClasses classify(const JointGraph& joint);

}  // namespace coda
