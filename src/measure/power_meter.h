// SPDX-License-Identifier: Apache-2.0
// SM clock and energy from NVML: at a power limit a kernel's speed is its joules a flop, so every
// sustained figure stands beside these.
#pragma once

namespace coda::measure {

class PowerMeter {
 public:
  PowerMeter();

  unsigned sm_clock_mhz() const;
  double joules() const;  // since the driver was loaded; constant where the counter does not run
  double watts() const;   // averaged by the driver over about a second
  double limit_watts() const;

 private:
  void* device_ = nullptr;
};

}  // namespace coda::measure
