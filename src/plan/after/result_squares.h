// SPDX-License-Identifier: Apache-2.0
// Sums of squares of results, from the programs that store them: the norm of all gradients then
// reads a 64th of what they are.
#pragma once

#include <map>
#include <set>
#include <string>

#include "coda/plan.h"

namespace coda {

// `results`: matrices that the plan stores in fp32, each with the name of a tensor that the plan
// shall have for its squares: a row partial, one sum for 64 columns of a row, as the program that
// stores the result last leaves it. A result is left out where a call writes it last, where a loop
// over chunks adds it up, or where its columns are no whole spans of 64. Returns the results whose
// squares are stored.
std::set<std::string> store_squares(Plan& plan, const std::map<std::string, std::string>& results);

}  // namespace coda
