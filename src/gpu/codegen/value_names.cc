// SPDX-License-Identifier: Apache-2.0
// Avoids names that the text itself or the device files use.
#include "gpu/codegen/value_names.h"
#include "program/step_table.h"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace coda::gpu {

namespace {

// Parameters, variables, fields and types of the emitted text and of the device files.
constexpr const char* kReserved =
    "a at rows sub accumulators loaded stored pair row column inside block side scratch "
    "start turn next is_inside is_plain fragment unrolled Rows SubTile Arguments FragmentPosition "
    "Elements "
    "pair_of pack unpack rounded bits_of after_turn is_whole has_aligned_pairs "
    "load_element table_row load_pair load_two store_pair store_two add_pair "
    "add_to_row "
    "inside_pair "
    "wide_column";

// Prefixes of the enumerators of a kernel's argument (launch_arguments.h, space_operands.cc).
constexpr const char* kEnumerators[] = {"at_",          "map_",  "stride_",          "rows_",
                                        "columns_",     "half_", "k_blocks_",        "tile_rows_",
                                        "tile_columns", "band_", "selected_columns_"};

}  // namespace

ValueNames::ValueNames(const ProgramSizes& sizes) : sizes_(sizes) {
  std::istringstream words(kReserved);
  for (std::string word; words >> word;) names_.make(word);
}

const std::string& ValueNames::of_step(int i) {
  std::string& name = of_steps_[i];
  if (!name.empty()) return name;
  const Step& s = sizes_.step(i);
  std::string wanted = s.tensor() >= 0               ? sizes_.tensor(s.tensor()).name
                       : program::is_product(s)      ? "acc"
                       : program::is_column_index(s) ? "column_index"
                                                     : "v" + std::to_string(i);
  for (const Step& other : sizes_.program().steps) {
    if (program::is_tile_store(other) && other.operands[0] == i && s.tensor() < 0)
      wanted = sizes_.tensor(other.tensor()).name;
  }
  const bool hides = std::any_of(std::begin(kEnumerators), std::end(kEnumerators),
                                 [&](const char* begin) { return wanted.starts_with(begin); });
  return name = names_.make(hides ? "value_" + wanted : wanted);
}

}  // namespace coda::gpu
