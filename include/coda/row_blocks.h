// SPDX-License-Identifier: Apache-2.0
// Describes the loops over row blocks of a plan (RowBlocks in coda/plan.h) at given sizes.
#pragma once

#include <cstdint>
#include <string>

#include "coda/api.h"
#include "coda/plan.h"

namespace CODA_API coda {

// Rows per block, at least 1. The last block has the remaining rows.
int64_t rows_of_block(const RowBlocks& loop, const DimValues& sizes);
// The number of blocks.
int64_t row_blocks_of(const RowBlocks& loop, const DimValues& sizes);

// Memory of the tensors that are used only inside a loop: for all rows at once, and for one block.
struct RowBlockBytes {
  double whole = 0;
  double block = 0;
};
RowBlockBytes row_block_bytes(const Plan& plan, int loop, const DimValues& sizes);

// "blocks of 512 rows of M (8), in 67.11 MB instead of 536.87 MB; sums over all rows: t356".
std::string row_blocks_text(const Plan& plan, int loop, const DimValues& sizes);

}  // namespace CODA_API coda
