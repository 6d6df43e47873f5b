// SPDX-License-Identifier: Apache-2.0
// The lines of --formula.
#pragma once

#include <string>
#include <vector>

namespace coda::tools {

// Each is a line or several, or the name of a file of them (.txt). Throws Error for a file that
// cannot be read.
std::string formula_text(const std::vector<std::string>& formulas);

}  // namespace coda::tools
