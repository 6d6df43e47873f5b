// SPDX-License-Identifier: Apache-2.0
// A case with tensors of its own on the GPU, in so many sets that none is found in L2.
#pragma once

#include <memory>
#include <vector>

#include "cases.h"
#include "gpu/gpu_backend.h"
#include "gpu/launch/launched_kernel.h"

namespace coda::hopper_memory {

class CaseRun {
 public:
  CaseRun(gpu::GpuState& state, Backend& backend, const Case& one);

  void run(unsigned set) { kernel_->run(views_[set % views_.size()]); }

 private:
  std::vector<gpu::DeviceMemory> memory_;
  std::vector<std::vector<TensorView>> views_;
  std::unique_ptr<Kernel> kernel_;
};

// So many that the last one's bytes have left the L2 cache.
unsigned sets_of(double bytes);

}  // namespace coda::hopper_memory
