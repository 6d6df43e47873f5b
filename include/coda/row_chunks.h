// SPDX-License-Identifier: Apache-2.0
// Describes the loops over row blocks of a plan (RowChunks in coda/plan.h) at given sizes.
#pragma once

#include <cstdint>
#include <string>

#include "coda/api.h"
#include "coda/plan.h"

namespace CODA_API coda {

// The rows of each block except the last, at least 1, and the number of blocks.
int64_t rows_of_chunk(const RowChunks& loop, const DimValues& sizes);
int64_t chunks_of(const RowChunks& loop, const DimValues& sizes);

// Memory of the tensors that are used only inside a loop: for all rows at once, and for one block.
struct ChunkBytes {
  double whole = 0;
  double chunk = 0;
};
ChunkBytes chunk_bytes(const Plan& plan, int loop, const DimValues& sizes);

// "chunks of 512 rows of M (8), in 67.11 MB instead of 536.87 MB; sums over all rows: t356".
std::string chunks_text(const Plan& plan, int loop, const DimValues& sizes);

}  // namespace CODA_API coda
