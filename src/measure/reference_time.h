// SPDX-License-Identifier: Apache-2.0
// Predicts the time of float64 references, which run on one core. Checks that would take ten
// minutes or more are refused before they begin.
#pragma once

#include <span>

#include "coda/program.h"

namespace coda::measure {

// The approximate time of one evaluation of the program.
double evaluation_seconds(const Program& program, const DimValues& sizes);

// Throws Error unless `evaluations` evaluations of all programs take less than ten minutes.
void require_short(std::span<const Program> programs, const DimValues& sizes, double evaluations);

}  // namespace coda::measure
