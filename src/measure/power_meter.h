// SPDX-License-Identifier: Apache-2.0
// Reads the SM clock and the energy from NVML. At the power limit a kernel's speed depends on its
// energy per operation, so each sustained time is reported with both.
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
