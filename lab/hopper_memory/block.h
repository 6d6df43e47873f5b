// SPDX-License-Identifier: Apache-2.0
// A LLaMA block without attention as its compiled plan runs it: with and without dependent launch,
// and what its steps without a product take of the whole.
#pragma once

#include <fstream>
#include <list>
#include <memory>

#include "coda/device.h"
#include "coda/plan.h"
#include "coda/session.h"
#include "gpu/gpu_backend.h"
#include "gpu/launch/launched_kernel.h"
#include "measure/gpu_timer.h"

namespace coda::hopper_memory {

struct BlockPlan {
  Plan plan;
  DimValues sizes;
  int64_t hidden = 0;
  bool backward = false;

  int launches() const;  // of kernels, in a run
};
BlockPlan block_plan(int64_t hidden, int64_t tokens, bool backward);

// The plan with tensors of its own; results are the session's.
class BlockRun {
 public:
  BlockRun(gpu::GpuState& state, const BlockPlan& block, bool dependent_launch);

  void run();

 private:
  bool backward_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Session> session_;
  std::list<DeviceTensor> tensors_;
};

void measure_block(std::shared_ptr<gpu::GpuState> state, const BlockPlan& block, double seconds,
                   measure::Timer& timer, std::ofstream& json);

}  // namespace coda::hopper_memory
