// SPDX-License-Identifier: Apache-2.0
// Sizes of tensors in bytes, for the cost model.
#pragma once

#include "coda/plan.h"
#include "coda/row_blocks.h"

namespace coda {

double bytes_of(const TensorDecl& decl, const DimValues& sizes);

}  // namespace coda
