// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <memory>

#include "bench.h"
#include "bench/llama_block/block_graph.h"
#include "coda/plan.h"
#include "cpu/cpu_backend.h"
#include "measure/host_timer.h"
#include "measure/plan_run.h"
#include "measure/random_fill.h"

namespace coda::tools {
namespace {

using measure::Candidate;
using measure::PlanRun;

// Weights and the like are small, as a model's are: then activations keep their size.
void fill(const TensorView& view, uint64_t seed, uint32_t limit) {
  measure::fill_random_on_host(view, seed, view.rows > 1 && view.cols > 1 ? 0.1F : 1.0F, limit);
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

struct NamedPlan {
  const char* name;
  const Plan* plan;
};

Measured time_on_cpu(const std::vector<NamedPlan>& plans, const DimValues& sizes,
                     const measure::HostRounds& rounds) {
  Measured result;
  const auto backend = cpu::make_cpu_backend();
  result.device = measure::processor_text(omp_get_max_threads());
  std::vector<std::unique_ptr<PlanRun>> runs;
  for (const NamedPlan& one : plans) {
    runs.push_back(std::make_unique<PlanRun>(*one.plan, *backend, sizes, fill));
    result.candidates.push_back(
        {.name = one.name, .launch = [run = runs.back().get()](unsigned) { run->run(); }});
  }
  std::vector<Candidate*> all;
  for (Candidate& candidate : result.candidates) all.push_back(&candidate);
  measure::time_on_host(all, rounds);
  for (Candidate& candidate : result.candidates) candidate.launch = nullptr;
  const auto ours = std::find_if(plans.begin(), plans.end(), [](const NamedPlan& one) {
    return std::string_view(one.name) != "products alone";
  });
  const PlanRun& run = *runs[static_cast<size_t>(ours - plans.begin())];
  result.session_bytes = run.session_bytes();
  result.bound_bytes = run.bound_bytes();
  return result;
}

}  // namespace

Measured bench_program_on_gpu(const Program& program, const DimValues& sizes,
                              const measure::MeasureOptions& options) {
  measure::Gpu gpu;
  measure::MeasuredProgram measured = measure::measure_program(gpu, program, sizes, options);
  Measured result;
  result.device = gpu.text();
  result.moved_bytes = measured.moved_bytes;
  if (measured.product) {
    result.flops = measured.product->flops();
    result.about["product"] = measured.product->text();
    result.candidates.push_back(std::move(measured.peer));
  }
  if (measured.first_heuristic) {
    result.candidates.push_back(std::move(*measured.first_heuristic));
  }
  for (Candidate& candidate : measured.ours) result.candidates.push_back(std::move(candidate));
  return result;
}

Measured bench_program_on_cpu(const Program& program, const DimValues& sizes,
                              const measure::HostRounds& rounds) {
  const Plan plan = one_step_plan(program);
  const Plan products = bench::products_alone(plan);
  std::vector<NamedPlan> plans;
  if (!products.forward.empty()) plans.push_back({"products alone", &products});
  plans.push_back({"program", &plan});
  Measured result = time_on_cpu(plans, sizes, rounds);
  result.flops = flops_of(plan, sizes);
  result.moved_bytes = measure::moved_bytes(program, sizes);
  return result;
}

Measured bench_plan_on_gpu(const Plan& plan, const DimValues& sizes,
                           const measure::Regimes& regimes) {
  measure::Gpu gpu;
  measure::MeasuredPlan measured = measure::measure_plan(gpu, plan, sizes, regimes);
  Measured result;
  result.device = gpu.text();
  result.flops = measured.flops;
  result.session_bytes = measured.session_bytes;
  result.bound_bytes = measured.bound_bytes;
  result.candidates = {std::move(measured.peer), std::move(measured.ours)};
  return result;
}

Measured bench_plan_on_cpu(const Plan& fused, const Plan& unfused, const DimValues& sizes,
                           const measure::HostRounds& rounds) {
  const Plan products = bench::products_alone(fused);
  Measured result = time_on_cpu(
      {{"products alone", &products}, {"fused", &fused}, {"unfused", &unfused}}, sizes, rounds);
  result.flops = flops_of(fused, sizes);
  return result;
}

}  // namespace coda::tools
