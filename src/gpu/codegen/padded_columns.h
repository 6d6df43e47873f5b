// SPDX-License-Identifier: Apache-2.0
// Decides how many columns a tile space without a GEMM processes.
#pragma once

#include <cstdint>

#include "coda/program.h"
#include "gpu/legalise/program_sizes.h"

namespace coda::gpu {

// Includes the gaps between rows if the program owns them, they extend rows to whole vectors, and
// no column depends on other columns. Then the kernel needs no code for partial vectors.
int64_t columns_with_padding(const ProgramSizes& sizes, const TileSpace& space);

}  // namespace coda::gpu
