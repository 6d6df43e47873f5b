// SPDX-License-Identifier: Apache-2.0
#include "measure/sm_clock.h"

#include <utility>
#include <vector>

namespace coda::measure {
namespace {

constexpr const char* kClockSource = R"cuda(#include "device/element.cuh"

using namespace coda::device;

struct alignas(16) Stamp {
  u64 cycles;
  u64 nanoseconds;
};

__device__ u64 nanoseconds_now() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void mark_clock(u64 stamps, u32 most_sms, u32 hold_nanoseconds) {
  const u64 begin = nanoseconds_now();
  while (nanoseconds_now() - begin < hold_nanoseconds) {
  }
  u32 sm;
  Stamp stamp;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(stamp.cycles));
  stamp.nanoseconds = nanoseconds_now();
  if (sm < most_sms) reinterpret_cast<Stamp*>(stamps)[sm] = stamp;
}
)cuda";

struct Stamp {
  uint64_t cycles;
  uint64_t nanoseconds;
};

constexpr uint32_t kMostSms = 256;
constexpr unsigned kSpinningBlocks = 4 * kMostSms;  // of one thread: several for each SM

constexpr size_t bytes_of_marks(size_t count) { return count * kMostSms * sizeof(Stamp); }

}  // namespace

SmClock::SmClock(std::shared_ptr<gpu::GpuState> state)
    : state_(std::move(state)),
      stamps_(state_->context, bytes_of_marks(2), state_->stream, "the clocks of SMs") {
  gpu::KernelLaunch launch;
  launch.function = "mark_clock";
  launch.source = kClockSource;
  function_ = state_->kernels->load("mark_clock", launch);
  const std::vector<std::byte> zeros(stamps_.bytes());
  gpu::check_driver(gpu::driver().memcpy_htod_async(stamps_.address(), zeros.data(), zeros.size(),
                                                    state_->stream),
                    "clearing the clocks of SMs");
  gpu::check_driver(gpu::driver().stream_synchronize(state_->stream), "clearing the clocks of SMs");
}

void SmClock::mark(uint32_t which, double hold_ms) {
  uint64_t stamps = stamps_.address() + bytes_of_marks(which);
  uint32_t most_sms = kMostSms;
  uint32_t hold_nanoseconds = static_cast<uint32_t>(hold_ms * 1e6);
  void* arguments[] = {&stamps, &most_sms, &hold_nanoseconds};
  const gpu::cuda::LaunchConfig config = {.grid = {kSpinningBlocks, 1, 1},
                                          .block = {1, 1, 1},
                                          .shared_bytes = 0,
                                          .stream = state_->stream,
                                          .attributes = nullptr,
                                          .attribute_count = 0};
  gpu::check_driver(gpu::driver().launch_kernel_ex(&config, function_, arguments, nullptr),
                    "reading the clocks of SMs");
}

double SmClock::mhz() const {
  std::vector<Stamp> stamps(2 * kMostSms);
  gpu::check_driver(gpu::driver().memcpy_dtoh_async(stamps.data(), stamps_.address(),
                                                    stamps_.bytes(), state_->stream),
                    "reading the clocks of SMs");
  gpu::check_driver(gpu::driver().stream_synchronize(state_->stream), "reading the clocks of SMs");
  double sum = 0;
  int sms = 0;
  for (uint32_t sm = 0; sm < kMostSms; ++sm) {
    const Stamp& start = stamps[sm];
    const Stamp& end = stamps[kMostSms + sm];
    if (start.nanoseconds == 0 || end.nanoseconds <= start.nanoseconds) continue;
    sum += static_cast<double>(end.cycles - start.cycles) * 1e3 /
           static_cast<double>(end.nanoseconds - start.nanoseconds);
    ++sms;
  }
  return sms == 0 ? 0 : sum / sms;
}

}  // namespace coda::measure
