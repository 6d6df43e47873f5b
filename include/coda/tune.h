// SPDX-License-Identifier: Apache-2.0
// Times configurations of a plan's kernels on this GPU, each with its epilogue, and keeps the
// result for whoever makes these kernels here afterwards. docs/configurations.md says what is timed
// and where it is kept.
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

// One kernel with products, of a program or of a part of one that is split.
struct TunedKernel {
  std::string program;
  std::string kernel_class;   // with the extents what it is kept under
  std::string extents;        // "16384x4096x2048"
  TimedConfiguration chosen;  // without tuning, timed as the others
  std::string chosen_by;      // "the shipped table at 16384x4096x4096", "the model"
  std::vector<TimedConfiguration> configurations;  // fastest first, never empty
};

struct TuneOptions {
  size_t most = 24;      // configurations of a kernel: the best by the model
  double seconds = 0.6;  // for each of the three fastest, twice; a sixth of it for the others
  bool keeps = true;
  bool again = true;  // false: what was tuned here at these sizes is left out
  std::function<void(const TunedKernel&)> done = [](const TunedKernel&) {};  // told each
  std::function<void(const std::string&)> says = [](const std::string&) {};  // what cannot be tuned
};

struct TuneReport {
  std::vector<TunedKernel> kernels;
  std::filesystem::path file;  // that it is kept in; empty: nowhere
};

// Each class of kernels at each size once; rows of tensors without gaps, as sessions lay them out.
// Throws Error where there is no such GPU, where the plan has no product, or, if it is to be kept,
// where there is no folder for it.
TuneReport tune(const Plan& plan, const DimValues& sizes, const TuneOptions& options = {});

}  // namespace CODA_API coda
