// SPDX-License-Identifier: Apache-2.0
#include "measure/power_meter.h"

#include "coda/error.h"
#include "gpu/jit/dynamic_library.h"

namespace coda::measure {
namespace {

constexpr int kClockSm = 1;

struct ManagementApi {
  int (*init)();
  int (*device)(unsigned, void**);
  int (*clock)(void*, int, unsigned*);
  int (*energy)(void*, unsigned long long*);
  int (*limit)(void*, unsigned*);
  int (*power)(void*, unsigned*);

  ManagementApi() {
    const gpu::DynamicLibrary nvml(gpu::management_library());
    nvml.load(init, "nvmlInit_v2");
    nvml.load(device, "nvmlDeviceGetHandleByIndex_v2");
    nvml.load(clock, "nvmlDeviceGetClockInfo");
    nvml.load(energy, "nvmlDeviceGetTotalEnergyConsumption");
    nvml.load(power, "nvmlDeviceGetPowerUsage");
    nvml.load(limit, "nvmlDeviceGetEnforcedPowerLimit");
  }
};

const ManagementApi& management_api() {
  static const ManagementApi instance;
  return instance;
}

}  // namespace

PowerMeter::PowerMeter() {
  if (management_api().init() != 0 || management_api().device(0, &device_) != 0) {
    throw Error("NVML, which reads clocks and power, does not answer; is the driver running?");
  }
}

unsigned PowerMeter::sm_clock_mhz() const {
  unsigned mhz = 0;
  management_api().clock(device_, kClockSm, &mhz);
  return mhz;
}

double PowerMeter::joules() const {
  unsigned long long millijoules = 0;
  management_api().energy(device_, &millijoules);
  return static_cast<double>(millijoules) * 1e-3;
}

double PowerMeter::watts() const {
  unsigned milliwatts = 0;
  management_api().power(device_, &milliwatts);
  return milliwatts * 1e-3;
}

double PowerMeter::limit_watts() const {
  unsigned milliwatts = 0;
  management_api().limit(device_, &milliwatts);
  return milliwatts * 1e-3;
}

}  // namespace coda::measure
