// SPDX-License-Identifier: Apache-2.0
// The numbers in a tensor as float64 and back, of any storage type: for references and tests, not
// for speed.
#pragma once

#include <span>
#include <vector>

#include "coda/tensor.h"

namespace coda {

// Row-major [rows, cols] without gaps.
std::vector<double> read_values(const TensorView& view);
// Each value rounded to the view's type, to nearest even (by way of float for the 16-bit types).
void write_values(std::span<const double> values, const TensorView& view);

}  // namespace coda
