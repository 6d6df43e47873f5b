// SPDX-License-Identifier: Apache-2.0
// Emits the index arithmetic of a tile space: from base columns to columns of a tensor in memory,
// and from pairs of base columns to element indices.
#pragma once

#include <string>

#include "gpu/codegen/launch_arguments.h"
#include "gpu/codegen/space_operands.h"

namespace coda::gpu {

// Refers to what it is made of, which outlives it.
class SpacePlaces {
 public:
  SpacePlaces(const ProgramSizes& sizes, const SpaceOperands& operands, LaunchArguments& arguments)
      : sizes_(sizes), operands_(operands), arguments_(arguments) {}

  // The column in memory of base column `column` in plane `plane` of step i's value.
  std::string natural(int i, int plane, const std::string& column);
  // The inverse: plane and base column of a column in memory.
  std::string plane_column(int i);

  // The element of step i's tensor at `row` and base column `column`.
  std::string element(int i, int plane, const std::string& row, const std::string& column);
  // "first[, second]": the elements of a pair, base columns `column` and the next.
  std::string pair(int i, int plane, const std::string& row);
  // Whether the two elements of such a pair are adjacent in memory.
  bool are_neighbours(int i) const;
  // The suffix of the device functions for such elements: "pair" if they are adjacent, else "two".
  const char* pair_or_two(int i) const;
  // Whether the 64 base columns of a sub-tile are adjacent in memory.
  bool is_contiguous(int i) const;

 private:
  std::string base();
  int64_t columns_of(int i) const;

  const ProgramSizes& sizes_;
  const SpaceOperands& operands_;
  LaunchArguments& arguments_;
};

}  // namespace coda::gpu
