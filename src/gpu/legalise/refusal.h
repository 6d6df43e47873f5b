// SPDX-License-Identifier: Apache-2.0
// The reason why a tile space does not fit into a kernel. A refusal is a value: the caller that
// gets it splits the program (legalise.h). Its text is made only when it is shown to a person.
#pragma once

#include <cstdint>
#include <string>

#include "gpu/legalise/program_sizes.h"

namespace coda::gpu {

enum class RefusalReason : uint8_t {
  // GEMMs.
  operand_type,          // tensor cores do not support the type of `tensor`
  operand_types,         // `tensor` and `other`, operands of one GEMM, differ in type
  mixed_elements,        // GEMMs of one tile differ in type
  mixed_layouts,         // GEMMs of one tile differ in storage order
  first_operands,        // GEMMs `step` and `other` share a tile but have different first operands
  accumulators,          // needs `value` accumulators per column of a tile, which has `budget`
  pair_distance,         // members of the pairs of GEMM `step` are `value` columns apart
  pair_with_other_gemm,  // the same, and another GEMM shares the tile
  // Epilogues.
  group_in_tile,     // no tile can hold groups of `value` columns
  column_reduction,  // the partial `step` is not computed from a GEMM
  without_product,   // the effect `step` is not possible in a GEMM's epilogue
  registers,         // the epilogue of space `value` needs more than `budget`
  // Groups, with or without a GEMM.
  two_groups,        // columns of `step` would belong to two different groups
  groups_cut_pairs,  // groups and pairs within `value` columns overlap partly
  group_in_warp,  // a warp cannot hold a group of `value` base columns: more than `budget`, or odd
};

struct Refusal {
  RefusalReason reason = RefusalReason::registers;
  int step = -1;
  int other = -1;   // a step or a tensor
  int tensor = -1;  // index in the program
  int64_t value = 0;
  int64_t budget = 0;
  std::string uses{};  // the largest uses of the budget

  friend bool operator==(const Refusal&, const Refusal&) = default;
};

// For example "its products have 6 accumulators for each column of one tile, and a tile has
// registers for 4". `sizes`: of the rejected program.
std::string why(const Refusal& refusal, const ProgramSizes& sizes);

// The same with the program's name and sizes in front and a remedy at the end.
std::string text(const Refusal& refusal, const ProgramSizes& sizes);

}  // namespace coda::gpu
