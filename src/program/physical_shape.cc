// SPDX-License-Identifier: Apache-2.0
// How a declared tensor lies in memory: dense tensors as they are, partials with their lanes
// stacked along the rows, so that every tensor is one dense matrix and an allocator needs no other
// case.
#include "coda/error.h"
#include "coda/program.h"

namespace coda {

PhysicalShape physical_shape(const TensorDecl& decl, const DimValues& sizes) {
  const int64_t rows = decl.shape.rows.evaluate(sizes);
  const int64_t cols = decl.shape.cols.evaluate(sizes);
  switch (decl.kind) {
    case TensorKind::dense: return {rows, cols};
    case TensorKind::row_partial: return {decl.lanes * rows, partial_spans(cols)};
    case TensorKind::column_partial: return {decl.lanes * partial_spans(rows), cols};
  }
  throw InternalError("a tensor of unknown kind");
}

}  // namespace coda
