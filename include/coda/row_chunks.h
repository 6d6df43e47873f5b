// SPDX-License-Identifier: Apache-2.0
// What the loops over row chunks of a plan (RowChunks in coda/plan.h) do at given sizes, for
// people.
#pragma once

#include <cstdint>
#include <string>

#include "coda/api.h"
#include "coda/plan.h"

namespace CODA_API coda {

// Rows of all chunks but the last, at least 1; how many chunks.
int64_t rows_of_chunk(const RowChunks& loop, const DimValues& sizes);
int64_t chunks_of(const RowChunks& loop, const DimValues& sizes);

// Of what only the steps of a loop see: for all rows at once, and for one chunk.
struct ChunkBytes {
  double whole = 0;
  double chunk = 0;
};
ChunkBytes chunk_bytes(const Plan& plan, int loop, const DimValues& sizes);

// "chunks of 512 rows of M (8), in 67.11 MB instead of 536.87 MB; sums over all rows: t356".
std::string chunks_text(const Plan& plan, int loop, const DimValues& sizes);

}  // namespace CODA_API coda
