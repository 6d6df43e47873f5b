// SPDX-License-Identifier: Apache-2.0
// The sizes at which files are checked where none are given.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coda/graph_text.h"
#include "coda/program.h"

namespace coda::tools {

// Each symbol of the tensors' shapes with the largest number that it is multiplied by.
using Factors = std::map<std::string, int64_t>;
Factors factors_of(const std::vector<Program>& programs);
Factors factors_of(const NamedGraph& named);  // of its inputs

// Sizes that fill tiles, ragged ones, and ones smaller than any tile.
std::vector<DimValues> usual_sizes(const Factors& factors);
// At which finite differences take no time.
DimValues small_sizes(const Factors& factors);

}  // namespace coda::tools
