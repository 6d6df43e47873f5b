// SPDX-License-Identifier: Apache-2.0
// Converts between float64 arrays and tensors of any type.
#pragma once

#include <vector>

#include "coda/array.h"
#include "coda/program.h"
#include "coda/tensor.h"

namespace coda::measure {

// A dense image of the values in the tensor's type.
Tensor on_host(const TensorDecl& decl, const DimValues& sizes, const std::vector<double>& values);

// A matrix [M, N], a vector [M], a scalar []; a partial as it lies in memory.
Array array_of(const TensorDecl& decl, const Tensor& tensor);

}  // namespace coda::measure
