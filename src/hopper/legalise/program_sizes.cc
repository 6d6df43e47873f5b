// SPDX-License-Identifier: Apache-2.0
#include "hopper/legalise/program_sizes.h"

namespace coda::hopper {

int64_t partial_spans(int64_t size) { return (size + kPartialSpan - 1) / kPartialSpan; }

int64_t ProgramSizes::stored_rows(int t) const {
  const TensorDecl& decl = tensor(t);
  const int64_t rows = size(decl.shape.rows);
  return decl.lanes * (decl.kind == TensorKind::column_partial ? partial_spans(rows) : rows);
}

int64_t ProgramSizes::stored_columns(int t) const {
  const TensorDecl& decl = tensor(t);
  const int64_t columns = size(decl.shape.cols);
  return decl.kind == TensorKind::row_partial ? partial_spans(columns) : columns;
}

int64_t ProgramSizes::stride(int t) const {
  return options_.row_strides.empty() ? stored_columns(t) : options_.row_strides[t];
}

std::string ProgramSizes::description() const {
  std::string text = "program '" + program_.name + "'";
  const char* separator = " with ";
  for (const auto& [name, value] : sizes_) {
    text += separator + name + " = " + std::to_string(value);
    separator = ", ";
  }
  return text;
}

}  // namespace coda::hopper
