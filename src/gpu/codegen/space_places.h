// SPDX-License-Identifier: Apache-2.0
// Where the elements of a tile space's tensors stand in memory, as text of its CUDA struct: base
// columns become natural columns, pairs of base columns become element numbers.
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

  // Where base column `column` of plane `plane` of step i's value stands.
  std::string natural(int i, int plane, const std::string& column);
  // The inverse: the plane and base column of natural column `column`.
  std::string plane_column(int i);

  // The element of step i's tensor at `row` and the base column `column`.
  std::string element(int i, int plane, const std::string& row, const std::string& column);
  // "first place[, second place]" of a pair: base columns `column` and the next.
  std::string pair(int i, int plane, const std::string& row);
  // Whether such pairs are neighbours in memory.
  bool are_neighbours(int i) const;
  // What the device's functions on those places end in: "pair" if they are neighbours, else "two".
  const char* pair_or_two(int i) const;
  // Whether the 64 base columns of a sub-tile are neighbours in memory.
  bool is_contiguous(int i) const;

 private:
  std::string base();
  int64_t columns_of(int i) const;

  const ProgramSizes& sizes_;
  const SpaceOperands& operands_;
  LaunchArguments& arguments_;
};

}  // namespace coda::gpu
