// SPDX-License-Identifier: Apache-2.0
// How many columns a tile space without a product works on.
#pragma once

#include <cstdint>

#include "coda/program.h"
#include "gpu/legalise/program_sizes.h"

namespace coda::gpu {

// Its own, and what lies between the rows of its tiles too where that is the program's own and
// reaches to whole vectors, and no column knows of others: then all of it is vectors.
int64_t columns_with_padding(const ProgramSizes& sizes, const TileSpace& space);

}  // namespace coda::gpu
