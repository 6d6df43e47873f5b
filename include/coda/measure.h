// SPDX-License-Identifier: Apache-2.0
// Times of a program or of a plan beside those of the products inside it alone: on a GPU by cuBLAS,
// on the CPU by the same backend. docs/benchmarks.md says how to read them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/compile.h"

namespace CODA_API coda {

// Of a run. A figure never stands without its spread.
struct Spread {
  double median_ms = 0;  // 0: not measured
  double low_ms = 0;     // 10th percentile
  double high_ms = 0;    // 90th percentile
  double mhz = 0;        // the SMs' clock meanwhile, median; 0: not read
};

// What was timed. A GPU at its power limit has no single speed, hence three regimes; on the CPU
// there is the last of them.
struct Timed {
  std::string name;
  Spread sustained{};    // alone and without a pause, on a hot chip
  Spread cool{};         // bursts of 2 ms after pauses of 40 ms: at the full clock
  Spread interleaved{};  // bursts in turns, in random order: all at one clock
  double watts = 0;      // in the sustained regime; 0: not read
};
struct TimingRegime {
  const char* name;
  Spread Timed::* times;
};
inline constexpr TimingRegime kTimingRegimes[] = {
    {"sustained", &Timed::sustained}, {"cool", &Timed::cool}, {"interleaved", &Timed::interleaved}};

// {"candidate": "chosen", "sustained_ms": 0.41, "sustained_low_ms": ...}: its name and the regimes
// that were measured, as a JSON object.
std::string json_text(const Timed& timed);

struct GpuTiming {
  double seconds = 1.2;        // sustained, each at a time; 0: without
  int repetitions = 2;         // of the sustained regime
  double heat_seconds = 1.0;   // before it
  int cool_rounds = 15;        // 0: without
  int interleaved_rounds = 0;  // of 10 ms each; 0: without
  size_t tuned = 0;        // of a program: so many configurations that the model ranks first, too
  bool times_all = false;  // these in all regimes, not only the fastest of them
  // 8-bit products summed by the tensor cores alone, ours and cuBLAS's.
  bool fast_accumulation = false;
};
struct CpuTiming {
  int rounds = 15;
  double round_ms = 20;      // of each candidate, which runs at least once
  double most_seconds = 30;  // then no further round begins, but for the first three
};
struct MeasureOptions {
  std::string backend = "best";  // "cpu", "gpu", or "best": a GPU if there is one, else the CPU
  GpuTiming gpu{};
  CpuTiming cpu{};
  // Of a program: beside it also its operations one by one, each reading its operands from memory
  // and writing its result there, and a copy that reads and writes as many bytes as the program's
  // tensors have, each read or written once: no program is faster than that.
  bool beside = false;
  bool steps = false;  // of a plan on a GPU: also each of its steps by itself
  // Told what comes next, as far as it takes seconds.
  std::function<void(const std::string&)> says = [](const std::string&) {};
};

// A step of a plan with nothing beside it, and its products alone, sustained; 0: it has none.
struct TimedStep {
  std::string name;
  double ms = 0;
  double products_ms = 0;
};

struct Measured {
  std::string device;               // "NVIDIA H200, driver for CUDA 13.0, power limit 700 W"
  std::vector<Timed> candidates{};  // the products alone come first, where there are any
  std::vector<Timed> screened{};    // configurations that were timed briefly: the sustained regime
  std::vector<TimedStep> steps{};   // in the plan's order
  std::string product{};            // the largest: "16384 x 4096 x 2048 tn bf16"; empty: none
  double flops = 0;                 // of the products
  double moved_bytes = 0;           // of a program: its tensors, each read or written once
  int64_t session_bytes = 0;        // of a plan: temporaries, what is saved, results
  int64_t bound_bytes = 0;          // of a plan: the caller's, weights and inputs
};

// On random tensors: on a GPU in so many sets that none is found in L2. Beside a program on a GPU
// stands the fastest of 16 algorithms of cuBLAS for its largest product, and cuBLAS's first
// heuristic where that is another. Throws Error where a size is missing, or the machine lacks what
// is asked for.
Measured measure_program(const Program& program, const DimValues& sizes,
                         const MeasureOptions& options);

// The forward, and the backward if the plan has one. What makes copies of parameters has run
// before, and is not timed. `unfused`: on the CPU, the plan of the same work to be timed beside it.
Measured measure_plan(const Compiled& compiled, const DimValues& sizes,
                      const MeasureOptions& options, const Compiled* unfused = nullptr);

// Only the products of a plan: each GEMM program without its epilogue, its accumulators stored.
Plan products_alone(const Plan& plan);

}  // namespace CODA_API coda
