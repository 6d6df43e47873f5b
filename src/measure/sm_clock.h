// SPDX-License-Identifier: Apache-2.0
// Measures the mean SM clock between two marks on a stream, by the SMs' cycle counters. The driver
// reports only a momentary value, late and in steps of 15 MHz. Milliseconds times this clock are
// cycles, which distinguish a kernel that waits from a kernel that is limited by power.
#pragma once

#include <memory>

#include "gpu/launch/device_memory.h"
#include "gpu/launch/launched_kernel.h"

namespace coda::measure {

class SmClock {
 public:
  explicit SmClock(std::shared_ptr<gpu::GpuState> state);

  // Marks are enqueued on the state's stream, about 3 us each. The stream is held for `hold_ms`
  // before the first, so that what the host enqueues meanwhile finds it busy, and runs without a
  // gap behind the mark.
  void mark_start(double hold_ms) { mark(0, hold_ms); }
  void mark_end() { mark(1, 0); }
  // Of the SMs that both marks ran on, their mean; waits for the stream.
  double mhz() const;

 private:
  void mark(uint32_t which, double hold_ms);

  std::shared_ptr<gpu::GpuState> state_;
  gpu::DriverHandle function_ = nullptr;
  gpu::DeviceMemory stamps_;  // [2][kMostSms] pairs of {cycles, nanoseconds}
};

}  // namespace coda::measure
