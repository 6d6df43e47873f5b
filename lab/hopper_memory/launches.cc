// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "block.h"
#include "step_tensors.h"

namespace coda::hopper_memory {
namespace {

constexpr int kBatches = 40;
constexpr int kLaunches = 400;  // of a batch: the driver's queue takes about a thousand

// Microseconds of the host for a call, the median of batches; the GPU is idle before each.
double host_us(gpu::DriverHandle stream, int calls, const std::function<void()>& call) {
  std::vector<double> times;
  for (int batch = 0; batch < kBatches; ++batch) {
    gpu::check_driver(gpu::driver().stream_synchronize(stream), "waiting for the GPU");
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
    times.push_back(us.count() / calls);
  }
  gpu::check_driver(gpu::driver().stream_synchronize(stream), "waiting for the GPU");
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return times[kBatches / 2];
}

struct Argument {
  unsigned char bytes[768];
};

}  // namespace

void measure_launches(std::shared_ptr<gpu::GpuState> state, std::ofstream& json) {
  const auto report = [&](const char* row, double us, int launches) {
    std::printf("host time, %-44s %7.2f us a call, %6.2f us a launch (%d)\n", row, us,
                us / launches, launches);
    std::fflush(stdout);
    json << nlohmann::json{{"row", row}, {"us", us}, {"launches", launches}}.dump() << "\n";
  };
  gpu::KernelLaunch empty;
  empty.function = "empty";
  empty.source =
      "struct Argument { unsigned char bytes[768]; };\n"
      "extern \"C\" __global__ void empty(const __grid_constant__ Argument) {}\n";
  const gpu::DriverHandle function = state->kernels->load("empty", empty);
  Argument argument{};
  for (const bool dependent : {false, true}) {
    gpu::cuda::LaunchAttribute attribute{
        .id = gpu::cuda::kDependentLaunch, .padding = 0, .cluster = {1, 0, 0}, .rest = {}};
    const gpu::cuda::LaunchConfig config = {.grid = {1, 1, 1},
                                            .block = {32, 1, 1},
                                            .shared_bytes = 0,
                                            .stream = state->stream,
                                            .attributes = &attribute,
                                            .attribute_count = dependent ? 1U : 0U};
    void* arguments[] = {&argument};
    report(dependent ? "the driver's call alone, dependent" : "the driver's call alone",
           host_us(state->stream, kLaunches,
                   [&] {
                     gpu::check_driver(
                         gpu::driver().launch_kernel_ex(&config, function, arguments, nullptr),
                         "launching");
                   }),
           1);
  }
  const Program program = parse_program("program tiny { store(y:bf16, tile(x[M, N]:bf16)) }");
  Case tiny;
  tiny.row = "tiny";
  tiny.step = {.name = "tiny", .role = StepRole::tile, .work = program, .reasons = {}};
  tiny.tensors = program.tensors;
  tiny.sizes = {{"M", 64}, {"N", 64}};
  for (const bool dependent : {false, true}) {
    const auto backend = gpu::make_gpu_backend({.device = -1,
                                                .cache = {},
                                                .compile_threads = 0,
                                                .lowering = {},
                                                .dependent_launch = dependent});
    backend->use_stream(Stream::of(state->stream));
    CaseRun run(*state, *backend, tiny);
    report(dependent ? "a tiny program, dependent" : "a tiny program",
           host_us(state->stream, kLaunches, [&] { run.run(0); }), 1);
    unsigned set = 0;
    report(dependent ? "the same, other tensors each time, dependent"
                     : "the same, other tensors each time",
           host_us(state->stream, kLaunches, [&] { run.run(set++); }), 1);
  }
  for (const bool backward : {false, true}) {
    const BlockPlan block = block_plan(1024, 128, backward);
    const int launches = block.launches();
    for (const bool dependent : {false, true}) {
      BlockRun run(*state, block, dependent);
      run.run();
      const std::string row = std::string(backward ? "a block, forward + backward" : "a block") +
                              (dependent ? ", dependent" : "");
      report(row.c_str(), host_us(state->stream, kLaunches / launches, [&] { run.run(); }),
             launches);
    }
  }
}

}  // namespace coda::hopper_memory
