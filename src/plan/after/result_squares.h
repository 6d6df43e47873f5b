// SPDX-License-Identifier: Apache-2.0
// Lets programs that store results also store sums of their squares, so that the norm of all
// gradients reads a 64th of the data.
#pragma once

#include <map>
#include <set>
#include <string>

#include "coda/plan.h"

namespace coda {

// `results`: matrices that the plan stores in fp32, with the name of a new tensor for the squares:
// a row partial with one sum per 64 columns of a row, stored by the program that writes the result
// last. A result is skipped if a call writes it last, if a loop over row blocks accumulates it, or
// if its columns are not a multiple of 64. Returns the results whose squares are stored.
std::set<std::string> store_squares(Plan& plan, const std::map<std::string, std::string>& results);

}  // namespace coda
