// SPDX-License-Identifier: Apache-2.0
// The text of --formula.
#pragma once

#include <string>
#include <vector>

namespace coda::tools {

// Each argument is one or more lines, or the name of a file with lines (.txt). Throws Error for an
// unreadable file.
std::string formula_text(const std::vector<std::string>& formulas);

}  // namespace coda::tools
