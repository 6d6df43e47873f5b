// SPDX-License-Identifier: Apache-2.0
// What the row loops of a plan (RowLoop in coda/plan.h) do at given sizes, for people.
#pragma once

#include <cstdint>
#include <string>

#include "coda/api.h"
#include "coda/plan.h"

namespace CODA_API coda {

// Rows of all blocks but the last, at least 1; how many blocks.
int64_t rows_of_block(const RowLoop& loop, const DimValues& sizes);
int64_t blocks_of(const RowLoop& loop, const DimValues& sizes);

// Of what only the steps of a loop see: for all rows at once, and for one block.
struct LoopBytes {
  double whole = 0;
  double block = 0;
};
LoopBytes loop_bytes(const Plan& plan, int loop, const DimValues& sizes);

// "blocks of 512 rows of M (8), in 67.11 MB instead of 536.87 MB; sums over all rows: t356".
std::string loop_text(const Plan& plan, int loop, const DimValues& sizes);

}  // namespace CODA_API coda
