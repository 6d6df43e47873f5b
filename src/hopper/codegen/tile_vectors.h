// SPDX-License-Identifier: Apache-2.0
// Values of a tile space that are no tiles, as text: scalars, one value a row, one a column. They
// are written where the first tile needs them, in the columns that it lies in.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hopper/codegen/column_text.h"
#include "hopper/codegen/tile_run_text.h"

namespace coda::hopper {

// What a thread holds of a step's value: names of planes, of a row's float, or a literal.
using Planes = std::vector<std::string>;

// Refers to what it is made of, which outlives it.
class TileVectors {
 public:
  TileVectors(const Program& program, ArgumentText& arguments, ColumnText& columns,
              TileRunText& text)
      : program_(program), arguments_(arguments), columns_(columns), text_(text) {}

  // Step i's value beside one of `layout`.
  Planes value(int i, const TileLayout& layout);
  // An i32 vector as an index of each row.
  std::string index_of_row(int tensor);

 private:
  void make(int i, const TileLayout& layout, int w, const std::string& value);
  std::string element_of_row(int tensor);

  const Program& program_;
  ArgumentText& arguments_;
  ColumnText& columns_;
  TileRunText& text_;
  std::map<std::pair<int, std::string>, Planes> values_;  // by the columns they lie in
  std::set<int> indices_;                                 // tensors
};

}  // namespace coda::hopper
