// SPDX-License-Identifier: Apache-2.0
#include "bandwidth.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>

#include "coda/error.h"
#include "gpu/gpu_backend.h"
#include "step_tensors.h"

namespace coda::hopper_memory {
namespace {

using measure::Candidate;

// Copies that together move `bytes`, half of them read.
class Copies {
 public:
  Copies(gpu::GpuState& state, double bytes)
      : stream_(state.stream), half_(static_cast<size_t>(bytes / 2)) {
    for (unsigned set = 0; set < 2 * sets_of(bytes); ++set) {
      memory_.emplace_back(state.context, half_, stream_, "a copy", gpu::Allocation::plain);
    }
  }
  void run(unsigned set) const {
    const size_t from = 2 * set % memory_.size();
    gpu::check_driver(gpu::driver().memcpy_dtod_async(memory_[from + 1].address(),
                                                      memory_[from].address(), half_, stream_),
                      "copying on the GPU");
  }

 private:
  gpu::DriverHandle stream_;
  size_t half_;
  std::vector<gpu::DeviceMemory> memory_;
};

}  // namespace

std::vector<double> measure_bandwidth(std::shared_ptr<gpu::GpuState> state,
                                      const std::vector<Case>& cases, double seconds,
                                      bool in_graphs, measure::Timer& timer, std::ofstream& json) {
  const auto backend = gpu::make_gpu_backend();
  backend->use_stream(Stream::of(state->stream));
  std::vector<double> times;
  for (const Case& one : cases) {
    try {
      Candidate ours;
      Candidate copy;
      {
        CaseRun run(*state, *backend, one);
        ours.launch = [&](unsigned set) { run.run(set); };
        if (in_graphs) ours.sets = sets_of(one.bytes());
        timer.sustained({&ours}, seconds, 1, 0);
      }
      {
        const Copies copies(*state, std::max(one.bytes(), 64.0));
        copy.launch = [&](unsigned set) { copies.run(set); };
        if (in_graphs) copy.sets = sets_of(one.bytes());
        timer.sustained({&copy}, seconds, 1, 0);
      }
      const double ms = ours.sustained.median_ms;
      times.push_back(ms);
      std::printf("%-34s D %6ld %9.2f MB %9.2f us %7.3f TB/s | copy %9.2f us %7.3f TB/s | %.3f\n",
                  one.row.c_str(), one.hidden, one.bytes() * 1e-6, ms * 1e3,
                  one.bytes() / ms * 1e-9, copy.sustained.median_ms * 1e3,
                  one.bytes() / copy.sustained.median_ms * 1e-9, copy.sustained.median_ms / ms);
      std::fflush(stdout);
      json << nlohmann::json{{"row", one.row},
                             {"hidden", one.hidden},
                             {"bytes", one.bytes()},
                             {"ms", ms},
                             {"low_ms", ours.sustained.low_ms},
                             {"high_ms", ours.sustained.high_ms},
                             {"copy_ms", copy.sustained.median_ms},
                             {"sm_mhz", ours.sustained.mhz}}
                  .dump()
           << "\n";
    } catch (const Error& error) {
      times.push_back(0);
      std::printf("%s, D %ld: %s\n", one.row.c_str(), one.hidden, error.what());
    }
  }
  return times;
}

}  // namespace coda::hopper_memory
