// SPDX-License-Identifier: Apache-2.0
// Reads and writes one element of a tensor of any type in host memory, for references, tests and
// edges. Code that is limited by bandwidth has its own conversions.
#pragma once

#include <cstdint>

#include "coda/dtype.h"

namespace coda {

double read_element(DType type, const void* data, int64_t index);

// Rounded to nearest, to fp32 first; of i32 the nearest integer, of NaN the smallest.
void write_element(DType type, void* data, int64_t index, double value);

// What is read of what was written.
double rounded_to(DType type, double value);

}  // namespace coda
