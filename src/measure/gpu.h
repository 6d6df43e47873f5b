// SPDX-License-Identifier: Apache-2.0
// The GPU that a benchmark uses: its context (current in the calling thread during the lifetime of
// this object), kernels, a separate stream, clocks and power.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gpu/launch/launched_kernel.h"
#include "gpu/legalise/lower_options.h"
#include "measure/gpu_timer.h"
#include "measure/power_meter.h"
#include "measure/sm_clock.h"

namespace coda::measure {

class Gpu {
 public:
  // `target`: as BackendOptions::target. Throws Error if there is no GPU that runs its kernels.
  explicit Gpu(std::string_view target = {});
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const std::shared_ptr<gpu::GpuState>& state() const { return state_; }
  const PowerMeter& power() const { return power_; }
  Timer& timer() { return timer_; }
  // Options for kernels of this GPU's target.
  gpu::LowerOptions lowering() const { return {.target = &state_->kernels->target()}; }
  // "NVIDIA H200, driver for CUDA 13.0, power limit 700 W".
  std::string text() const;

 private:
  std::shared_ptr<gpu::GpuState> state_;
  gpu::Context::Scope scope_;
  PowerMeter power_;
  SmClock clock_;
  Timer timer_;
};

}  // namespace coda::measure
