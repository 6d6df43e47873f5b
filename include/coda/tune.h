// SPDX-License-Identifier: Apache-2.0
// Times configurations of a plan's kernels, with their epilogues, on this GPU, and stores the
// results for later compilations on this machine. docs/configurations.md says what is timed and
// where the results are stored.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/plan.h"

namespace CODA_API coda {

struct TimedConfiguration {
  std::string code;  // "128x256c21s3": the tile, cooperative or ping-pong, cluster, stages
  double microseconds = 0;
};

// One kernel with GEMMs, of a program or of a part of a split program.
struct TunedKernel {
  std::string program;
  std::string kernel_class;   // results are stored under class and extents
  std::string extents;        // "16384x4096x2048"
  TimedConfiguration chosen;  // the choice without tuning, timed like the others
  std::string chosen_by;      // "the shipped table at 16384x4096x4096", "the model"
  std::vector<TimedConfiguration> configurations;  // fastest first, never empty
};

struct TuneOptions {
  size_t most = 24;      // configurations per kernel: the model's best
  double seconds = 0.6;  // for each of the three fastest, twice; a sixth of it for the others
  std::string target{};  // as BackendOptions::target
  bool keeps = true;
  bool again = true;  // false: skip what was already tuned here at these sizes
  std::function<void(const TunedKernel&)> done = [](const TunedKernel&) {};  // for each kernel
  std::function<void(const std::string&)> says = [](const std::string&) {};  // what is skipped
};

struct TuneReport {
  std::vector<TunedKernel> kernels;
  std::filesystem::path file;  // where results are stored; empty: nowhere
};

// Times each class of kernels once at each size, for tensors without gaps between rows, as sessions
// allocate them. Throws Error if there is no suitable GPU, if the plan has no GEMM, or if results
// are to be stored and there is no folder for them.
TuneReport tune(const Plan& plan, const DimValues& sizes, const TuneOptions& options = {});

}  // namespace CODA_API coda
