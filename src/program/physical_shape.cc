// SPDX-License-Identifier: Apache-2.0
// The layout of a declared tensor in memory. Partials stack their lanes along the rows, so that
// every tensor is one dense matrix and allocators need no special case.
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
