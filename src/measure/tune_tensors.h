// SPDX-License-Identifier: Apache-2.0
// Tensors for timing one program after another, in memory that is filled with random numbers once.
// Tensors that kernels write are separate from the operands of GEMMs, so the operands keep their
// values.
#pragma once

#include <vector>

#include "gpu/launch/launched_kernel.h"

namespace coda::measure {

class TuneTensors {
 public:
  explicit TuneTensors(gpu::GpuState& state) : state_(state) {}

  // Makes so many sets of tensors that a set is no longer in L2 when it is used again. Invalidates
  // views of earlier calls.
  std::vector<std::vector<TensorView>> make(const Program& program, const DimValues& sizes,
                                            const std::vector<int64_t>& row_strides);

 private:
  struct Region {
    gpu::DeviceMemory memory;
    size_t used = 0;
  };
  void reserve(Region& region, size_t bytes);

  gpu::GpuState& state_;
  Region read_;
  Region written_;
  Region indices_;
};

}  // namespace coda::measure
