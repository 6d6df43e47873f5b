// SPDX-License-Identifier: Apache-2.0
// Default sizes for checking files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coda/graph_text.h"
#include "coda/program.h"

namespace coda::tools {

// For each symbol in the tensors' shapes, the largest factor that multiplies it.
using Factors = std::map<std::string, int64_t>;
Factors factors_of(const std::vector<Program>& programs);
Factors factors_of(const NamedGraph& named);  // of its inputs

// Sizes that fill tiles, ragged sizes, and sizes smaller than any tile.
std::vector<DimValues> usual_sizes(const Factors& factors);
// Sizes for fast finite differences.
DimValues small_sizes(const Factors& factors);

}  // namespace coda::tools
