// SPDX-License-Identifier: Apache-2.0
// Programs with products for tests: those of the plans of whole models and layers, and random ones
// whose products a tensor core can make.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gpu/codegen/kernel_launch.h"
#include "gpu/legalise/lower_options.h"
#include "plan/blocks.h"
#include "plan/search/search.h"
#include "program/random_program.h"

namespace coda::gpu {

struct SizedProgram {
  std::string name;
  Program program;
  DimValues sizes;
  LowerOptions options;
};

// Rows as a plan's own buffers have them, and a framework's: a multiple of 16 bytes apart.
inline std::vector<int64_t> padded_strides(const Program& program, const DimValues& sizes) {
  std::vector<int64_t> strides;
  for (const TensorDecl& tensor : program.tensors) {
    const int64_t columns = physical_shape(tensor, sizes).cols;
    const bool is_matrix = !tensor.shape.is_vector() && tensor.kind == TensorKind::dense;
    strides.push_back(is_matrix ? (columns + 7) / 8 * 8 : columns);
  }
  return strides;
}

enum class PlanSource { llama_model, llama_layer, gpt2_model, parallel_block, sandwich_block };

// The programs with products of one plan, `layers` layers of it. Gradients in fp32 are added to
// what is there, if not told otherwise.
inline std::vector<SizedProgram> gemm_programs(PlanSource source, const LlamaSizes& sizes,
                                               int64_t rows, DType storage, Objective objective,
                                               DType gradients, int layers = 1,
                                               bool accumulates = true) {
  Block block;
  block.storage = storage;
  switch (source) {
    case PlanSource::llama_model: llama_model(block, layers, false, sizes); break;
    case PlanSource::llama_layer: llama_layer_alone(block, sizes); break;
    case PlanSource::gpt2_model: gpt2_model(block, layers, sizes); break;
    case PlanSource::parallel_block: parallel_block(block, sizes); break;
    case PlanSource::sandwich_block: sandwich_block(block, sizes); break;
  }
  for (GradientRequest& gradient : block.request.gradients) {
    gradient.dtype = gradients;
    gradient.accumulate = accumulates && gradients == DType::f32;
  }
  CompileOptions options;
  options.storage = storage;
  options.objective = objective;
  options.sizes = {{"M", rows}};
  options.rates = h200_rates();
  const Plan plan = compile(block.graph, block.request, options, {.given = block.given}).plan;
  std::vector<SizedProgram> programs;
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      const Program* program = std::get_if<Program>(&step.work);
      if (program == nullptr || step.role != StepRole::gemm) continue;
      SizedProgram sized{step.name, *program, options.sizes, {}};
      sized.options.row_strides = padded_strides(*program, options.sizes);
      programs.push_back(std::move(sized));
    }
  }
  return programs;
}

// The same program with products that tensor cores can make: bf16 or f16 operands of one layout;
// several products read one A (with K segments only if there is one product).
inline Program with_products_for_tensor_cores(Program program, uint64_t seed) {
  std::mt19937_64 random(seed);
  const DType type = random() % 2 == 0 ? DType::bf16 : DType::f16;
  const bool transpose_a = random() % 2 == 0;
  const bool transpose_b = random() % 2 == 0;
  const auto products = std::count_if(program.steps.begin(), program.steps.end(),
                                      [](const Step& s) { return s.kind() == StepKind::gemm; });
  int a_of_all = -1;
  for (Step& step : program.steps) {
    auto* product = std::get_if<steps::Gemm>(&step.work);
    if (product == nullptr) continue;
    if (products > 1) product->segments.resize(1);
    for (GemmSegment& segment : product->segments) {
      const TensorDecl& own = program.tensors[segment.a];
      const Dim k = segment.transpose_a ? own.shape.rows : own.shape.cols;
      if (products == 1 || a_of_all < 0) {
        TensorDecl& a = program.tensors[a_of_all = segment.a];
        a.shape = transpose_a ? Shape{k, step.shape.rows} : Shape{step.shape.rows, k};
        a.dtype = type;
      }
      segment.a = products == 1 ? segment.a : a_of_all;
      const Shape& shape = program.tensors[segment.a].shape;
      const Dim& depth = transpose_a ? shape.rows : shape.cols;
      TensorDecl& b = program.tensors[segment.b];
      b.shape = transpose_b ? Shape{step.shape.cols, depth} : Shape{depth, step.shape.cols};
      b.dtype = type;
      segment.transpose_a = transpose_a;
      segment.transpose_b = transpose_b;
    }
  }
  // An A that is no longer read leaves the program.
  std::vector<TensorDecl> tensors;
  std::map<int, int> moved;
  const auto move = [&](int& tensor) {
    const auto [found, is_new] = moved.try_emplace(tensor, static_cast<int>(tensors.size()));
    if (is_new) tensors.push_back(program.tensors[tensor]);
    tensor = found->second;
  };
  for (Step& step : program.steps) {
    for (int* tensor : program::tensor_fields(step)) move(*tensor);
  }
  program.tensors = std::move(tensors);
  return program;
}

}  // namespace coda::gpu
