// SPDX-License-Identifier: Apache-2.0
// Converts the elements of a tensor of any type to float64 and back; for references and tests, not
// for speed.
#pragma once

#include <span>
#include <vector>

#include "coda/tensor.h"

namespace coda {

// Row-major [rows, cols] without gaps.
std::vector<double> read_values(const TensorView& view);
// Rounds each value to the view's type, to nearest even (16-bit types through float).
void write_values(std::span<const double> values, const TensorView& view);

}  // namespace coda
