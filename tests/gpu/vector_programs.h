// SPDX-License-Identifier: Apache-2.0
// Programs without products for tests: random ones whose products are made tiles of memory, and
// those of the plans of whole models.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/blocks.h"
#include "program/random_program.h"

namespace coda::gpu {

// The same program with each product read from memory instead.
inline Program without_products(Program program) {
  std::vector<TensorDecl> tensors;
  std::map<int, int> moved;
  const auto move = [&](int& tensor) {
    const auto [found, is_new] = moved.try_emplace(tensor, static_cast<int>(tensors.size()));
    if (is_new) tensors.push_back(program.tensors[tensor]);
    tensor = found->second;
  };
  for (size_t i = 0; i < program.steps.size(); ++i) {
    Step& step = program.steps[i];
    if (step.kind() == StepKind::gemm) {
      step.work = steps::LoadTile{static_cast<int>(tensors.size())};
      tensors.push_back({"product_" + std::to_string(i), step.shape});
    } else {
      for (int* tensor : program::tensor_fields(step)) move(*tensor);
    }
  }
  program.tensors = std::move(tensors);
  return program;
}

struct PlanProgram {
  std::string name;
  Program program;
  StepRole role;
  DimValues sizes;
};

// All programs without products of LLaMA's and GPT-2's plans.
inline std::vector<PlanProgram> plan_programs(DType storage, const LlamaSizes& sizes,
                                              int64_t rows) {
  std::vector<PlanProgram> programs;
  for (const bool llama : {true, false}) {
    Block block;
    block.storage = storage;
    if (llama) {
      llama_model(block, 2, false, sizes);
    } else {
      LlamaSizes same = sizes;
      same.kv_heads = same.heads;
      gpt2_model(block, 2, same);
    }
    for (GradientRequest& gradient : block.request.gradients) gradient.dtype = storage;
    CompileOptions options;
    options.storage = storage;
    options.sizes = {{"M", rows}};
    options.rates = h200_rates();
    const Compiled compiled = compile(block.graph, block.request, options);
    for (const auto* phase : {&compiled.plan.forward, &compiled.plan.backward}) {
      for (const PlanStep& step : *phase) {
        const Program* program = std::get_if<Program>(&step.work);
        if (program == nullptr || step.role == StepRole::gemm) continue;
        programs.push_back(
            {(llama ? "llama " : "gpt2 ") + step.name, *program, step.role, options.sizes});
      }
    }
  }
  return programs;
}

}  // namespace coda::gpu
