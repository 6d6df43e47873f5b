// SPDX-License-Identifier: Apache-2.0
// Tensors for timing program after program: carved from memory that is filled with random numbers
// once. What kernels write lies apart from what they multiply, so operands stay as they were.
#pragma once

#include <vector>

#include "gpu/launch/launched_kernel.h"

namespace coda::measure {

class TuneTensors {
 public:
  explicit TuneTensors(gpu::GpuState& state) : state_(state) {}

  // In so many sets that none is found in L2 when its turn comes again. Views of earlier calls are
  // no longer valid.
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
