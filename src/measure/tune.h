// SPDX-License-Identifier: Apache-2.0
// Times the configurations of a program's kernels, each with its epilogue, alone on a hot chip: all
// for a short while, then the fastest again for longer. (Configurations that take turns share one
// clock, which flatters those that draw much power.)
// Invariant: operands rotate past L2, and a large product runs before every sample, so that the
// chip is hot and launches are queued: host time is never measured.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/codegen/gemm_program.h"
#include "gpu/launch/launched_kernel.h"

namespace coda::measure {

// How long, and among how many: coda/tune.h for those of a user.
struct TuneEffort {
  size_t most = 24;             // configurations: the best by the model
  bool is_diverse = false;      // of these: the best few of each tile shape
  double screen_seconds = 0.1;  // each
  size_t finalists = 3;
  double seconds = 0.6;  // each finalist, twice
};

struct TimedKernel {
  gpu::KernelClass kernel;
  std::vector<gpu::SpaceWork> work;       // the kernel's work as the cost model sees it
  gpu::ChosenConfig chosen;               // the configuration without tuning
  double chosen_microseconds = 0;         // timed like the others
  std::vector<gpu::TimedChoice> choices;  // fastest first
};

// A kernel's text. Comments say sizes and names, which a kernel does not depend on: without them
// the kernels of other sizes are the same text.
std::string without_comments(const std::string& source);

// What is tuned: one kernel of a program, or of a part of one that is split: with the epilogue that
// it has there, and loading and storing what the parts pass on. Its tensors have no names of their
// own, so that programs that differ in names only are compiled once.
struct TuneJob {
  std::string name;  // of the program or part
  Program program;
  DimValues sizes;
  gpu::LowerOptions options;  // with row strides; its `choice` is ignored
  size_t kernel = 0;          // index of the kernel in GemmProgram
};
// One for each of its kernels with products. Throws Error where no kernels can be made.
std::vector<TuneJob> tune_jobs(const Program& program, const DimValues& sizes,
                               const gpu::LowerOptions& options);
// What its result is kept under, and found by when the program is lowered.
gpu::KernelClass class_of(const TuneJob& job);

// What is compiled to tune it: a launch for each configuration that is timed.
std::vector<gpu::KernelLaunch> tuned_launches(const TuneJob& job, const TuneEffort& options);

// "NVIDIA H200, driver 580.159.04, NVRTC 13.0": what times depend on beside the kernel.
std::string measured_on(gpu::GpuState& state);

class Tuner {
 public:
  // In the calling thread's context; the state's stream is used.
  explicit Tuner(std::shared_ptr<gpu::GpuState> state);
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  // Compiles in parallel what is timed.
  TimedKernel tune(const TuneJob& job, const TuneEffort& options);

  // Starts to compile what the jobs will need, in their order, on all cores but one.
  void compile_ahead(const std::vector<TuneJob>& jobs, const TuneEffort& options);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace coda::measure
