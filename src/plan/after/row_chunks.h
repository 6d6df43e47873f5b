// SPDX-License-Identifier: Apache-2.0
// Loops over chunks of rows: how a plan's steps become one, and what a step sees of a tensor in it.
#pragma once

#include <set>
#include <string>

#include "coda/plan.h"
#include "coda/row_chunks.h"

namespace coda {

struct RowChunksRequest {
  RowChunks loop;
  std::set<std::string> values;  // tensors that shall live in the loop only, or be written by it
  std::set<std::string> sums;    // written by products over all rows
};

// The steps of the forward that touch the values, and what stands between them, become one loop.
// Returns why not, where a step can be neither in it nor before or behind it; the plan is then as
// it was.
std::string make_row_chunks(Plan& plan, const RowChunksRequest& request);

// The sizes that a chunk's steps see.
DimValues sizes_of_chunk(const RowChunks& loop, const DimValues& sizes, int64_t chunk);

// Whether a step in the loop sees the tensor's rows of a chunk only.
bool is_sliced(const TensorDecl& decl, const RowChunks& loop);

}  // namespace coda
