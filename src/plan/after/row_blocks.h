// SPDX-License-Identifier: Apache-2.0
// Makes loops over blocks of rows from a plan's steps, and defines what a step sees of a tensor
// inside a loop.
#pragma once

#include <set>
#include <string>

#include "coda/plan.h"
#include "coda/row_blocks.h"

namespace coda {

struct RowBlocksRequest {
  RowBlocks loop;
  std::set<std::string> values;  // exist only in the loop, or are written by it
  std::set<std::string> sums;    // written by GEMMs over all rows
};

// Joins the steps of the forward that use the values, and the steps between them, into one loop. If
// a step can be neither inside nor before nor after the loop, returns the reason and leaves the
// plan unchanged.
std::string make_row_blocks(Plan& plan, const RowBlocksRequest& request);

// The sizes that the steps of a block see.
DimValues sizes_of_row_block(const RowBlocks& loop, const DimValues& sizes, int64_t block);

// Whether a step in the loop sees only the block's rows of the tensor.
bool is_sliced(const TensorDecl& decl, const RowBlocks& loop);

}  // namespace coda
