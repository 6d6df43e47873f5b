// SPDX-License-Identifier: Apache-2.0
// The time of a program, or of a whole plan, on the GPU against the products inside it alone on
// cuBLAS (the fastest of its heuristics' first 16 for each), in the regimes of gpu_timer.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coda/plan.h"
#include "hopper/configure/choose_config.h"
#include "measure/gpu.h"
#include "measure/products.h"

namespace coda::measure {

// Sustained, of each candidate; the fastest of them are then timed as Regimes says.
constexpr double kScreenSeconds = 0.12;

struct Regimes {
  double seconds = 1.2;        // sustained, each at a time; 0: without
  int repetitions = 2;         // of the sustained regime
  double heat_seconds = 1.0;   // before it
  int cool_rounds = 15;        // 0: without
  int interleaved_rounds = 0;  // of 10 ms each; 0: without
  // Told what comes next, as far as it takes seconds.
  std::function<void(const std::string&)> says = [](const std::string&) {};
};
// Times all candidates; the first is what the chip is heated with.
void measure(Timer& timer, const std::vector<Candidate*>& candidates, const Regimes& regimes);

// That a program's tensors have: each read or written once.
double moved_bytes(const Program& program, const DimValues& sizes);

struct MeasuredProgram {
  // The largest product, which a program's peer multiplies; none: a program without one, and no
  // peer.
  std::optional<ProductShape> product;
  Candidate peer;
  // cuBLAS's first heuristic, which a framework gets that asks for one; none if the fastest is it.
  std::optional<Candidate> first_heuristic;
  // As chosen; with tuning the fastest configuration beside it, or all.
  std::vector<Candidate> ours;
  std::vector<Candidate> screened;  // with tuning: all that were timed, sustained only
  double moved_bytes = 0;
};

struct MeasureOptions {
  Regimes regimes;
  size_t tuned = 0;        // so many of the configurations that the model ranks first are timed too
  bool times_all = false;  // with tuning: these in all regimes, not only the fastest of them
  unsigned sets = 0;       // of tensors, rotated; 0: so many that no run finds its own in L2
};

MeasuredProgram measure_program(Gpu& gpu, const Program& program, const DimValues& sizes,
                                const MeasureOptions& options);

struct MeasuredPlan {
  double flops = 0;  // of all products
  Candidate peer;    // the products alone, one after the other
  Candidate ours;
  int64_t session_bytes = 0;  // temporaries and what the forward saves
  int64_t bound_bytes = 0;    // the caller's: weights, inputs, outputs, gradients
};

// The forward, and the backward if the plan has one.
MeasuredPlan measure_plan(Gpu& gpu, const Plan& plan, const DimValues& sizes,
                          const Regimes& regimes);

}  // namespace coda::measure
