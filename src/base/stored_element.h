// SPDX-License-Identifier: Apache-2.0
// One element of a tensor in the host's memory, whatever its type: for references, tests and
// edges. What bandwidth depends on has its own code.
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
