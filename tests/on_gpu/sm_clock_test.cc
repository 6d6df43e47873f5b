// SPDX-License-Identifier: Apache-2.0
// The benchmarks' marks on a stream. Needs a GPU; skipped elsewhere.
#include "measure/sm_clock.h"

#include "measure/gpu.h"
#include "on_gpu/on_gpu.h"

namespace coda::tests {
namespace {

using SmClock = OnGpu;

double milliseconds_between_marks(const measure::Gpu& gpu, measure::SmClock& clock,
                                  double hold_ms) {
  const gpu::DriverApi& driver = gpu::driver();
  const gpu::DriverHandle stream = gpu.state()->stream;
  gpu::DriverHandle events[2];
  for (gpu::DriverHandle& event : events) {
    gpu::check_driver(driver.event_create(&event, 0), "making an event");
  }
  gpu::check_driver(driver.event_record(events[0], stream), "timing a mark");
  clock.mark_start(hold_ms);
  gpu::check_driver(driver.event_record(events[1], stream), "timing a mark");
  clock.mark_end();
  gpu::check_driver(driver.event_synchronize(events[1]), "waiting for a mark");
  float ms = 0;
  gpu::check_driver(driver.event_elapsed_time(&ms, events[0], events[1]), "timing a mark");
  for (const gpu::DriverHandle event : events) driver.event_destroy(event);
  return ms;
}

// How much longer it takes is the machine's affair: other work may share the GPU.
TEST_F(SmClock, HoldsTheStreamAsLongAsItIsAskedAndReadsAClock) {
  const measure::Gpu gpu;
  measure::SmClock clock(gpu.state());
  for (const double hold_ms : {0.0, 0.5, 4.0}) {
    EXPECT_GE(milliseconds_between_marks(gpu, clock, hold_ms), 0.98 * hold_ms);
    EXPECT_GT(clock.mhz(), 100);
    EXPECT_LT(clock.mhz(), 4000);
  }
}

}  // namespace
}  // namespace coda::tests
