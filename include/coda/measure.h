// SPDX-License-Identifier: Apache-2.0
// Times a program or a plan, and for comparison its GEMMs alone: with cuBLAS on a GPU, with the
// same backend on the CPU. docs/benchmarks.md explains the results.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/compile.h"

namespace CODA_API coda {

// Time of a run with its spread.
struct Spread {
  double median_ms = 0;  // 0: not measured
  double low_ms = 0;     // 10th percentile
  double high_ms = 0;    // 90th percentile
  double mhz = 0;        // SM clock during the measurement, median; 0: not read
};

// Times of one candidate. A GPU at its power limit has no single speed, hence three regimes. On the
// CPU only the last one is measured.
struct Timed {
  std::string name;
  Spread sustained{};    // back to back, on a hot chip
  Spread cool{};         // bursts of 2 ms after pauses of 40 ms: at the full clock
  Spread interleaved{};  // candidates take turns in random order: all at the same clock
  double watts = 0;      // in the sustained regime; 0: not read
};
struct TimingRegime {
  const char* name;
  Spread Timed::* times;
};
inline constexpr TimingRegime kTimingRegimes[] = {
    {"sustained", &Timed::sustained}, {"cool", &Timed::cool}, {"interleaved", &Timed::interleaved}};

// The candidate's name and its measured regimes as a JSON object: {"candidate": "chosen",
// "sustained_ms": 0.41, "sustained_low_ms": ...}.
std::string json_text(const Timed& timed);

struct GpuTiming {
  double seconds = 1.2;        // of the sustained regime, for each candidate; 0: skip
  int repetitions = 2;         // of the sustained regime
  double heat_seconds = 1.0;   // warm-up before the sustained regime
  int cool_rounds = 15;        // 0: skip
  int interleaved_rounds = 0;  // of 10 ms each; 0: skip
  size_t tuned = 0;        // programs only: also time this many of the model's best configurations
  bool times_all = false;  // time these configurations in all regimes, not only the fastest one
  // 8-bit GEMMs accumulate in the tensor cores alone, in our kernels and in cuBLAS.
  bool fast_accumulation = false;
};
struct CpuTiming {
  int rounds = 15;
  double round_ms = 20;      // per candidate, which runs at least once
  double most_seconds = 30;  // stop after this time, but not before three rounds
};
struct MeasureOptions {
  std::string backend = "best";  // "cpu", "gpu", or "best": a GPU if there is one, else the CPU
  GpuTiming gpu{};
  CpuTiming cpu{};
  // Programs only: also time the unfused operations, each of which reads its operands from memory
  // and writes its result there, and a copy of as many bytes as the program's tensors have. The
  // copy is a lower bound for the program's time.
  bool compare = false;
  bool steps = false;  // plans on a GPU only: also time each plan step alone
  // Reports what is about to run, if it takes seconds.
  std::function<void(const std::string&)> says = [](const std::string&) {};
};

// A plan step that runs alone, and its GEMMs alone, in the sustained regime; 0: it has no GEMM.
struct TimedStep {
  std::string name;
  double ms = 0;
  double products_ms = 0;
};

struct Measured {
  std::string device;               // "NVIDIA H200, driver for CUDA 13.0, power limit 700 W"
  std::vector<Timed> candidates{};  // the GEMMs alone come first, if there are any
  std::vector<Timed> screened{};  // configurations that were timed briefly, in the sustained regime
  std::vector<TimedStep> steps{};  // in the plan's order
  std::string product{};           // the largest GEMM: "16384 x 4096 x 2048 tn bf16"; empty: none
  double flops = 0;                // of the GEMMs
  double moved_bytes = 0;     // of a program: the bytes of its tensors, each read or written once
  int64_t session_bytes = 0;  // of a plan: temporaries, saved tensors and results
  int64_t bound_bytes = 0;    // of a plan: tensors of the caller, weights and inputs
};

// Uses random tensors; on a GPU enough sets of them that L2 holds none. On a GPU the program is
// compared with the fastest of 16 cuBLAS algorithms for its largest GEMM, and with cuBLAS's first
// heuristic if that is another one. Throws Error if a size is missing or the machine lacks what is
// requested.
Measured measure_program(const Program& program, const DimValues& sizes,
                         const MeasureOptions& options);

// Times the forward, and the backward if the plan has one. Copies of parameters are made before and
// are not timed. `unfused`: on the CPU, a plan of the same work to time for comparison.
Measured measure_plan(const Compiled& compiled, const DimValues& sizes,
                      const MeasureOptions& options, const Compiled* unfused = nullptr);

// The plan reduced to its GEMMs: each GEMM program loses its epilogue and stores its accumulators.
Plan products_alone(const Plan& plan);

}  // namespace CODA_API coda
