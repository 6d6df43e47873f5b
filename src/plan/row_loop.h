// SPDX-License-Identifier: Apache-2.0
// Loops over blocks of rows: how a plan's steps become one, and what a step sees of a tensor in it.
#pragma once

#include <set>
#include <string>

#include "coda/plan.h"
#include "coda/row_loop.h"

namespace coda {

struct RowLoopRequest {
  RowLoop loop;
  std::set<std::string> values;  // tensors that shall live in the loop only, or be written by it
  std::set<std::string> sums;    // written by products over all rows
};

// The steps of the forward that touch the values, and what stands between them, become one loop.
// Returns why not, where a step can be neither in it nor before or behind it; the plan is then as
// it was.
std::string make_row_loop(Plan& plan, const RowLoopRequest& request);

// The sizes that a block's steps see.
DimValues sizes_of_block(const RowLoop& loop, const DimValues& sizes, int64_t block);

// Whether a step in the loop sees the tensor's rows of a block only.
bool is_sliced(const TensorDecl& decl, const RowLoop& loop);

}  // namespace coda
