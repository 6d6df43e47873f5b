// SPDX-License-Identifier: Apache-2.0
// products_alone() makes a plan of another plan's GEMMs without their epilogues, to measure what
// the epilogues cost.
#include <map>

#include "coda/measure.h"
#include "program/step_table.h"

namespace coda {

Plan products_alone(const Plan& plan) {
  Plan products;
  std::map<std::string, bool> declared;
  auto declare = [&](TensorDecl decl, TensorRole role) {
    if (declared.emplace(decl.name, true).second)
      products.tensors.push_back({.decl = std::move(decl), .role = role});
  };
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      if (step.role != StepRole::gemm) continue;
      const auto& program = std::get<Program>(step.work);
      Program bare;
      bare.name = step.name;
      std::map<int, int> tensors;
      DType type = DType::f32;
      auto use = [&](int index) {
        auto [entry, is_new] = tensors.try_emplace(index, static_cast<int>(bare.tensors.size()));
        if (is_new) {
          bare.tensors.push_back(program.tensors[static_cast<size_t>(index)]);
          declare(bare.tensors.back(), TensorRole::input);
        }
        type = program.tensors[static_cast<size_t>(index)].dtype;
        return entry->second;
      };
      for (const Step& s : program.steps) {
        if (!program::is_product(s)) continue;
        Step product = s;
        for (int* tensor : program::tensor_fields(product)) *tensor = use(*tensor);
        bare.steps.push_back(std::move(product));
        const TensorDecl out{step.name + ".out" + std::to_string(bare.steps.size()), s.shape, type,
                             TensorKind::dense, 1};
        declare(out, TensorRole::temporary);
        bare.tensors.push_back(out);
        bare.steps.push_back(program::tile_store(static_cast<int>(bare.tensors.size()) - 1,
                                                 static_cast<int>(bare.steps.size()) - 1, s.shape));
      }
      PlanStep alone{step.name, StepRole::gemm, std::move(bare), {}};
      (phase == &plan.forward ? products.forward : products.backward).push_back(std::move(alone));
    }
  }
  return products;
}

}  // namespace coda
