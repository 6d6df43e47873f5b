// SPDX-License-Identifier: Apache-2.0
// coda/measure.h: on a GPU measure_on_gpu.h, on the CPU here: plans in turns on one backend.
#include "coda/measure.h"

#include <omp.h>

#include <cstring>
#include <memory>
#include <optional>

#include "coda/device.h"
#include "coda/error.h"
#include "measure/host_timer.h"
#include "measure/measure_on_gpu.h"
#include "measure/one_by_one.h"
#include "measure/plan_run.h"
#include "measure/products.h"
#include "measure/random_fill.h"

namespace coda {
namespace {

using measure::Candidate;
using measure::PlanRun;

bool is_on_gpu(const MeasureOptions& options) {
  require(
      options.backend == "cpu" || options.backend == "gpu" || options.backend == "best",
      "the backend to measure must be \"cpu\", \"gpu\" or \"best\", not '" + options.backend + "'");
  if (options.backend == "cpu") return false;
  const std::string why = why_no_gpu();
  require(options.backend == "best" || why.empty(), why);
  return why.empty();
}

double flops_of(const Plan& plan, const DimValues& sizes) {
  double flops = 0;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      const auto* program = std::get_if<Program>(&step.work);
      if (program == nullptr) continue;
      for (const measure::ProductShape& shape : measure::products_of(*program, sizes))
        flops += shape.flops();
    }
  }
  return flops;
}

// All threads copy, as a program's do; half of the bytes are read, half written.
Candidate copy_on_host(double bytes) {
  const auto count = static_cast<size_t>(bytes / 2) + 1;
  const auto from = std::make_shared<std::vector<std::byte>>(count, std::byte{1});
  const auto to = std::make_shared<std::vector<std::byte>>(count);
  return {measure::kCopy, [from, to](unsigned) {
            const int64_t pieces = omp_get_max_threads();
            const auto size = std::ssize(*from);
#pragma omp parallel for schedule(static, 1)
            for (int64_t piece = 0; piece < pieces; ++piece) {
              const int64_t start = size * piece / pieces;
              std::memcpy(to->data() + start, from->data() + start,
                          static_cast<size_t>(size * (piece + 1) / pieces - start));
            }
          }};
}

const std::vector<ParameterCopy> kNoCopies;

struct NamedPlan {
  const char* name;
  const Plan* plan;
  const std::vector<ParameterCopy>* copies = &kNoCopies;
};

// The first is what is measured; its products alone stand before it, if there are any.
Measured measure_on_cpu(std::vector<NamedPlan> plans, const DimValues& sizes,
                        const CpuTiming& timing, const std::vector<Candidate>& others = {}) {
  const Plan& ours = *plans.front().plan;
  const Plan products = products_alone(ours);
  if (!products.forward.empty() || !products.backward.empty())
    plans.insert(plans.begin(), {"products alone", &products});
  const auto backend = make_backend("cpu");
  std::vector<std::unique_ptr<PlanRun>> runs;
  std::vector<Candidate> candidates;
  Measured result{.device = measure::processor_text(omp_get_max_threads()),
                  .flops = flops_of(ours, sizes)};
  for (const NamedPlan& one : plans) {
    runs.push_back(std::make_unique<PlanRun>(*one.plan, *one.copies, *backend, sizes,
                                             measure::fill_random_on_host));
    candidates.push_back({one.name, [run = runs.back().get()](unsigned) { run->run(); }});
    if (one.plan != &ours) continue;
    result.session_bytes = runs.back()->session_bytes();
    result.bound_bytes = runs.back()->bound_bytes();
  }
  candidates.insert(candidates.end(), others.begin(), others.end());
  std::vector<Candidate*> all;
  for (Candidate& candidate : candidates) all.push_back(&candidate);
  measure::time_on_host(all, timing);
  result.candidates.assign(candidates.begin(), candidates.end());
  return result;
}

}  // namespace

Measured measure_program(const Program& program, const DimValues& sizes,
                         const MeasureOptions& options) {
  if (is_on_gpu(options)) return measure::measure_program_on_gpu(program, sizes, options);
  const Plan plan = one_step_plan(program);
  const double bytes = measure::moved_bytes(program, sizes);
  std::vector<NamedPlan> plans{{"program", &plan}};
  std::vector<Candidate> others;
  std::optional<Plan> unfused;
  if (options.compare) {
    unfused = measure::one_by_one(program);
    if (unfused) plans.push_back({measure::kOneByOne, &*unfused});
    others.push_back(copy_on_host(bytes));
  }
  Measured result = measure_on_cpu(std::move(plans), sizes, options.cpu, others);
  result.moved_bytes = bytes;
  return result;
}

Measured measure_plan(const Compiled& compiled, const DimValues& sizes,
                      const MeasureOptions& options, const Compiled* unfused) {
  if (is_on_gpu(options)) return measure::measure_plan_on_gpu(compiled, sizes, options);
  std::vector<NamedPlan> plans{{"fused", &compiled.plan, &compiled.parameter_copies}};
  if (unfused != nullptr) plans.push_back({"unfused", &unfused->plan, &unfused->parameter_copies});
  return measure_on_cpu(std::move(plans), sizes, options.cpu);
}

}  // namespace coda
