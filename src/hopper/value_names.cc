// SPDX-License-Identifier: Apache-2.0
#include "hopper/value_names.h"

namespace coda::hopper {

const std::string& ValueNames::of_step(int i) {
  std::string& name = of_steps_[i];
  if (!name.empty()) return name;
  const Step& s = sizes_.step(i);
  std::string wanted = s.tensor >= 0                      ? sizes_.tensor(s.tensor).name
                       : s.kind == StepKind::gemm         ? "acc"
                       : s.kind == StepKind::column_index ? "column_index"
                                                          : "v" + std::to_string(i);
  for (const Step& other : sizes_.program().steps) {
    if (other.kind == StepKind::store_tile && other.operands[0] == i && s.tensor < 0)
      wanted = sizes_.tensor(other.tensor).name;
  }
  return name = names_.make(wanted);
}

}  // namespace coda::hopper
