// SPDX-License-Identifier: Apache-2.0
// Extents in memory, and the program's description for messages.
#include "gpu/legalise/program_sizes.h"

#include "program/step_table.h"

namespace coda::gpu {

int ProgramSizes::operand_of_erf_plus_one(int i) const {
  if (!program::applies(step(i), Elementwise::add)) return -1;
  for (const size_t k : {0U, 1U}) {
    const Step& one = step(step(i).operands[1 - k]);
    const Step& erf = step(step(i).operands[k]);
    if (program::is_constant(one) && one.number() == 1 && program::applies(erf, Elementwise::erf))
      return erf.operands[0];
  }
  return -1;
}

int64_t ProgramSizes::stored_rows(int t) const { return physical_shape(tensor(t), sizes_).rows; }

int64_t ProgramSizes::stored_columns(int t) const { return physical_shape(tensor(t), sizes_).cols; }

int64_t ProgramSizes::stride(int t) const {
  return options_.row_strides.empty() ? stored_columns(t) : options_.row_strides[t];
}

int64_t ProgramSizes::writable_columns(int t) const {
  return options_.owns_padding ? stride(t) : stored_columns(t);
}

std::string ProgramSizes::description() const {
  std::string text = "program '" + given_.name + "'";
  const char* separator = " with ";
  for (const auto& [name, value] : sizes_) {
    text += separator + name + " = " + std::to_string(value);
    separator = ", ";
  }
  return text;
}

}  // namespace coda::gpu
