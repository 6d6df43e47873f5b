// SPDX-License-Identifier: Apache-2.0
// A program with its own tensors on the GPU, in several sets, so that operands are never found in
// the L2 cache; and the GEMMs of the program on cuBLAS over tensors of the same shapes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/configure/choose_config.h"
#include "gpu/launch/launched_kernel.h"
#include "measure/cublas.h"
#include "measure/products.h"

namespace coda::measure {

// Indices of an i32 tensor are below it: row indices of a table are rows of it, columns to select
// are columns.
uint32_t index_limit(const Program& program, const DimValues& sizes, int tensor);

// Rows of 16-bit tensors are padded to 128 bytes. What the program reads is random.
class ProgramTensors {
 public:
  ProgramTensors(gpu::GpuState& state, const Program& program, const DimValues& sizes,
                 unsigned sets);

  unsigned sets() const { return static_cast<unsigned>(views_.size()); }
  const std::vector<TensorView>& views(unsigned set) const { return views_[set % views_.size()]; }

 private:
  std::vector<gpu::DeviceMemory> memory_;
  std::vector<std::vector<TensorView>> views_;
};

// The program on its tensors, whose strides replace those of the options.
std::unique_ptr<gpu::LaunchedKernel> prepare(std::shared_ptr<gpu::GpuState> state,
                                             const Program& program, const DimValues& sizes,
                                             const gpu::LowerOptions& options = {});

// One product on cuBLAS: its operands, and its algorithms.
class ProductPeer {
 public:
  ProductPeer(gpu::GpuState& state, const ProductShape& shape, unsigned sets,
              bool fast_accumulation = false);

  const ProductShape& shape() const { return shape_; }
  const std::vector<std::function<void(unsigned set)>>& algorithms() const { return algorithms_; }

 private:
  ProductShape shape_;
  std::vector<gpu::DeviceMemory> memory_;
  std::vector<GemmOperands> sets_;
  std::vector<std::function<void(unsigned set)>> algorithms_;
};

}  // namespace coda::measure
