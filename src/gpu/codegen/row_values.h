// SPDX-License-Identifier: Apache-2.0
// Emits the per-row values and scalars of a tile space. begin_tile loads and computes them once per
// tile for the thread's rows, and keeps those that fragments read in the struct Rows.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/codegen/function_text.h"
#include "gpu/codegen/space_operands.h"
#include "gpu/codegen/value_names.h"
#include "gpu/codegen/value_text.h"

namespace coda::gpu {

// Keeps references to the constructor's arguments.
class RowValues {
 public:
  RowValues(const ProgramSizes& sizes, const SpaceAnalysis& analysis, const SpaceOperands& operands,
            ValueNames& names, LaunchArguments& arguments);

  // The expression by which a fragment's pair reads step i's value.
  std::string value(int i);
  // An i32 vector as integers (column indices) for the thread's two rows of each block.
  std::string index(int tensor);
  // The value that a scalar of abs_max_into had when the tile began.
  std::string known_maximum(int tensor);
  // The row of a table that an i32 vector selects for the thread's row `which`: "[kBlock][0]".
  std::string table_row(int index, int table, const std::string& which);

  std::string fields() const { return fields_.text(); }  // of Rows
  // The lines of begin_tile for a space with `rows` rows.
  std::string begin(int64_t rows) const;

 private:
  using At = ValueText::At;
  const Step& step(int i) const { return sizes_.step(i); }
  Body& lines_of(int i) { return step(i).shape.is_scalar() ? scalar_lines_ : row_lines_; }
  void write(int i, const std::string& name, const std::string& text);
  std::optional<std::string> loaded(int i);
  std::string place(int tensor);
  std::string rows_of_thread() const;

  const ProgramSizes& sizes_;
  const SpaceAnalysis& analysis_;
  const SpaceOperands& operands_;
  ValueNames& names_;
  LaunchArguments& arguments_;
  ValueText values_;  // of begin_tile
  std::set<int> kept_;
  std::map<int, std::string> index_names_;  // by tensor
  std::map<int, std::string> maximum_names_;
  std::map<Dim, std::string> table_rows_;
  Body fields_{4};
  Body scalar_lines_{4};
  Body row_lines_{8};
};

}  // namespace coda::gpu
