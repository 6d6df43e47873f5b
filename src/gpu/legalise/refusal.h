// SPDX-License-Identifier: Apache-2.0
// Why no kernel takes a tile space as it is. A refusal is a value: who is refused acts on it, by
// splitting the program (legalise.h), and its words are made where a person reads them.
#pragma once

#include <cstdint>
#include <string>

#include "gpu/legalise/program_sizes.h"

namespace coda::gpu {

enum class RefusalReason : uint8_t {
  // Of products.
  operand_type,         // `tensor` is of no type that tensor cores multiply
  operand_types,        // `tensor` and `other`, operands of one product, differ in type
  mixed_elements,       // products of one tile differ in type
  mixed_layouts,        // products of one tile are stored in different orders
  first_operands,       // the products `step` and `other` meet in one tile, and read different ones
  accumulators,         // `value` of them for each column of a tile, which has `budget`
  pair_distance,        // the members of the pairs of the product `step` are `value` columns apart
  pair_beside_product,  // the same, where another product fills the tile too
  // Of an epilogue.
  group_in_tile,     // no tile holds groups of `value` columns
  column_reduction,  // the partial `step` is none that is made of a product
  without_product,   // a product's epilogue cannot make the effect `step`
  registers,         // the epilogue of space `value` takes more than `budget`
  // Of groups, with a product or without.
  two_groups,        // the columns of `step` stand for two different groups
  groups_cut_pairs,  // the groups and the pairs within `value` columns
  group_in_warp,     // no warp holds a group of `value` base columns: more than `budget`, or odd
};

struct Refusal {
  RefusalReason reason = RefusalReason::registers;
  int step = -1;
  int other = -1;   // a step, or a tensor
  int tensor = -1;  // of the program
  int64_t value = 0;
  int64_t budget = 0;
  std::string uses{};  // what takes most of the budget

  friend bool operator==(const Refusal&, const Refusal&) = default;
};

// "its products have 6 accumulators for each column of one tile, and a tile has registers for 4".
// `sizes` is of the program that was refused.
std::string why(const Refusal& refusal, const ProgramSizes& sizes);

// The same behind the program's name and sizes, and with a remedy behind it.
std::string text(const Refusal& refusal, const ProgramSizes& sizes);

}  // namespace coda::gpu
