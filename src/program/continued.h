// SPDX-License-Identifier: Apache-2.0
// Joins two programs over the same tiles into one, without passing values through memory.
#pragma once

#include "coda/program.h"

namespace coda::program {

// The effects of `first`, then of `second`. If the second program loads a whole tile that the first
// stores, it uses the value, rounded as stored. Tensors of the same name are the same. Throws
// InternalError if the second program reads something else that the first stores.
Program continued(const Program& first, const Program& second);

}  // namespace coda::program
