// SPDX-License-Identifier: Apache-2.0
// Joins the given lines and files in the order of the flags.
#include "formula_text.h"

#include <fstream>
#include <sstream>

#include "coda/messages.h"

namespace coda::tools {

std::string formula_text(const std::vector<std::string>& formulas) {
  std::string text;
  for (const std::string& formula : formulas) {
    if (!formula.ends_with(".txt")) {
      text += formula + "\n";
      continue;
    }
    std::ifstream file(formula, std::ios::binary);
    std::ostringstream contents;
    contents << file.rdbuf();
    require(file.good() && contents.good(), "--formula: cannot read " + printable(formula));
    text += contents.str() + "\n";
  }
  return text;
}

}  // namespace coda::tools
