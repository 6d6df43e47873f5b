// SPDX-License-Identifier: Apache-2.0
// What `coda bench` measures, on a GPU or on the CPU, and how it is shown.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coda/plan.h"
#include "measure/candidate.h"
#include "measure/host_timer.h"
#include "measure/measure_program.h"

namespace coda::tools {

// Candidates of one measurement; the first is what the others are compared with.
struct Measured {
  std::string device;
  std::string title;             // what, and its sizes
  nlohmann::ordered_json about;  // the same, for programs
  std::vector<measure::Candidate> candidates;
  double flops = 0;           // of the products; 0: there are none, and rates are of bytes
  double moved_bytes = 0;     // 0: not known
  int64_t tokens = 0;         // 0: joules a token mean nothing
  int64_t session_bytes = 0;  // of our own plan; 0: not known
  int64_t bound_bytes = 0;
};

// On the GPU against cuBLAS; on the CPU against the products alone on the same backend, and of a
// plan also unfused.
Measured bench_program_on_gpu(const Program& program, const DimValues& sizes,
                              const measure::MeasureOptions& options);
Measured bench_program_on_cpu(const Program& program, const DimValues& sizes,
                              const measure::HostRounds& rounds);
Measured bench_plan_on_gpu(const Plan& plan, const DimValues& sizes,
                           const measure::Regimes& regimes);
Measured bench_plan_on_cpu(const Plan& fused, const Plan& unfused, const DimValues& sizes,
                           const measure::HostRounds& rounds);

void print_table(const Measured& measured);
void print_json(const Measured& measured);

// coda bench start: what a first call, a warm start and a launch cost the host. Needs a GPU.
void bench_start(bool as_json);

}  // namespace coda::tools
