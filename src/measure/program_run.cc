// SPDX-License-Identifier: Apache-2.0
#include "measure/program_run.h"

#include <algorithm>

#include "base/rounding.h"
#include "gpu/lower.h"
#include "measure/random_fill.h"
#include "program/step_table.h"

namespace coda::measure {
namespace {

constexpr int64_t kPaddedRow = 128;  // bytes

TensorView allocate(gpu::GpuState& state, DType type, int64_t rows, int64_t cols,
                    const std::string& name, std::vector<gpu::DeviceMemory>& memory) {
  const int64_t size = size_of(type);
  const bool is_matrix = rows > 1 && cols > 1 && size == 2;
  const int64_t stride = is_matrix ? round_up(cols * size, kPaddedRow) / size : cols;
  memory.emplace_back(state.context, static_cast<size_t>(rows * stride * size), state.stream, name,
                      gpu::Allocation::plain);
  return {memory.back().data(), type, rows, cols, stride};
}

}  // namespace

uint32_t index_limit(const Program& program, const DimValues& sizes, int tensor) {
  int64_t limit = 1;
  for (const Step& step : program.steps) {
    if (step.row_index() == tensor) {
      limit = program.tensors[step.tensor()].shape.rows.evaluate(sizes);
    }
    if (program::is_selection(step) && program.steps[step.operands[1]].tensor() == tensor) {
      limit = program.steps[step.operands[0]].shape.cols.evaluate(sizes);
    }
  }
  return static_cast<uint32_t>(limit);
}

ProgramTensors::ProgramTensors(gpu::GpuState& state, const Program& program, const DimValues& sizes,
                               unsigned sets) {
  uint64_t seed = 1;
  for (unsigned set = 0; set < sets; ++set) {
    std::vector<TensorView>& views = views_.emplace_back();
    for (size_t t = 0; t < program.tensors.size(); ++t) {
      const TensorDecl& decl = program.tensors[t];
      const PhysicalShape shape = physical_shape(decl, sizes);
      views.push_back(allocate(state, decl.dtype, shape.rows, shape.cols, decl.name, memory_));
      fill_random(state, views.back(), seed++, 1.0F,
                  index_limit(program, sizes, static_cast<int>(t)));
    }
  }
}

std::unique_ptr<gpu::LaunchedKernel> prepare(std::shared_ptr<gpu::GpuState> state,
                                             const Program& program, const DimValues& sizes,
                                             const gpu::LowerOptions& options) {
  std::vector<gpu::KernelTensor> tensors;
  for (const TensorDecl& decl : program.tensors) tensors.push_back({decl.name, true, true});
  return std::make_unique<gpu::LaunchedKernel>(
      std::move(state), program.name, std::move(tensors),
      [program, sizes, options](std::span<const int64_t> row_strides) {
        gpu::LowerOptions own = options;
        own.row_strides.assign(row_strides.begin(), row_strides.end());
        return gpu::plan_program(program, sizes, own).plan;
      });
}

ProductPeer::ProductPeer(gpu::GpuState& state, const ProductShape& shape, unsigned sets,
                         bool fast_accumulation)
    : shape_(shape) {
  using device::OperandLayout;
  const bool a_turned = shape.layout == OperandLayout::nt || shape.layout == OperandLayout::tt;
  const bool b_turned = shape.layout == OperandLayout::tn || shape.layout == OperandLayout::tt;
  uint64_t seed = 1000;
  for (unsigned set = 0; set < sets; ++set) {
    const auto a = [&](int64_t rows, int64_t cols) {
      return allocate(state, shape.type, rows, cols, "a", memory_);
    };
    const auto b = [&](int64_t rows, int64_t cols) {
      return allocate(state, shape.type_b, rows, cols, "b", memory_);
    };
    const DType out = size_of(shape.type) == 1 ? DType::bf16 : shape.type;
    sets_.push_back({.a = a_turned ? a(shape.k, shape.m) : a(shape.m, shape.k),
                     .b = b_turned ? b(shape.n, shape.k) : b(shape.k, shape.n),
                     .out = allocate(state, out, shape.m, shape.n, "out", memory_)});
    fill_random(state, sets_.back().a, seed++);
    fill_random(state, sets_.back().b, seed++);
  }
  algorithms_ = cublas_algorithms(sets_, shape.layout, state.stream, fast_accumulation);
}

}  // namespace coda::measure
