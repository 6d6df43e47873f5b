// SPDX-License-Identifier: Apache-2.0
// What references in float64 take, which work on one core: said, or refused, before they begin.
#pragma once

#include <span>

#include "coda/program.h"

namespace coda::measure {

// Of one evaluation of the program, about.
double evaluation_seconds(const Program& program, const DimValues& sizes);

// Throws Error unless so many evaluations of all programs take less than ten minutes.
void require_short(std::span<const Program> programs, const DimValues& sizes, double evaluations);

}  // namespace coda::measure
