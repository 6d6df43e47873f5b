// SPDX-License-Identifier: Apache-2.0
// Copies the second program's steps after the first's and replaces loads of what the first stores.
#include "program/continued.h"

#include <algorithm>
#include <vector>

#include "coda/error.h"
#include "program/step_table.h"

namespace coda::program {

Program continued(const Program& first, const Program& second) {
  Program result = first;
  std::vector<int> tensors;  // indices in the result of the second program's tensors
  for (const TensorDecl& decl : second.tensors) {
    const auto found = std::ranges::find(result.tensors, decl.name, &TensorDecl::name);
    invariant(found == result.tensors.end() || *found == decl,
              "two programs that are joined declare a tensor otherwise");
    tensors.push_back(static_cast<int>(found - result.tensors.begin()));
    if (found == result.tensors.end()) result.tensors.push_back(decl);
  }
  // The step of the first program that stores a tensor; null if there is none.
  const auto store_of = [&](int tensor) -> const Step* {
    const auto stores = [&](const Step& s) { return is_effect(s) && s.tensor() == tensor; };
    const auto found = std::ranges::find_if(first.steps, stores);
    return found == first.steps.end() ? nullptr : &*found;
  };
  std::vector<int> values;  // indices in the result of the second program's steps
  for (const Step& s : second.steps) {
    Step step = s;
    for (int& operand : step.operands) operand = values[static_cast<size_t>(operand)];
    for (int* tensor : tensor_fields(step)) *tensor = tensors[static_cast<size_t>(*tensor)];
    bool is_stored = false;
    for (const int tensor : tensors_of(step)) is_stored |= store_of(tensor) != nullptr;
    if (is_stored) {
      const Step& store = *store_of(step.tensor());
      invariant(is_tile_load(step) && is_tile_store(store) && step.row_index() < 0 &&
                    step.shape == store.shape,
                "a program that is joined reads more than tiles of the one before it");
      const DType type = result.tensors[static_cast<size_t>(step.tensor())].dtype;
      step = {steps::AsStored{type}, store.shape, {store.operands[0]}};
    }
    values.push_back(static_cast<int>(result.steps.size()));
    result.steps.push_back(std::move(step));
  }
  return result;
}

}  // namespace coda::program
