// SPDX-License-Identifier: Apache-2.0
// The cost model, in seconds. A GEMM program takes max(flops / rate, bytes / bandwidth) plus a
// tenth of the hidden part. (Otherwise hidden bytes would be free, and 64 kB exposed would outweigh
// 134 MB hidden behind a GEMM.) Any other step takes bytes / bandwidth plus a launch. Vectors and
// partials count like all other bytes.
#include "plan/after/cost.h"

#include <algorithm>
#include <set>

#include "coda/error.h"
#include "coda/plan.h"
#include "coda/plan_cost.h"
#include "plan/after/row_blocks.h"
#include "program/step_table.h"

namespace coda {
namespace {

constexpr double kHiddenShare = 0.1;

double elements(const Shape& shape, const DimValues& sizes) {
  return static_cast<double>(shape.rows.evaluate(sizes)) *
         static_cast<double>(shape.cols.evaluate(sizes));
}

StepCost program_cost(const Program& program, const DimValues& sizes) {
  StepCost cost;
  std::set<int> read;
  std::set<int> written;
  for (const Step& step : program.steps) {
    for (const GemmSegment& s : step.segments()) {
      read.insert({s.a, s.b});
      const Shape& a = program.tensors[static_cast<size_t>(s.a)].shape;
      const Dim& depth = s.transpose_a ? a.rows : a.cols;
      cost.flops += 2 * elements(step.shape, sizes) * static_cast<double>(depth.evaluate(sizes));
    }
    if (step.tensor() >= 0) (program::is_effect(step) ? written : read).insert(step.tensor());
    if (step.row_index() >= 0) read.insert(step.row_index());
  }
  for (int t : read) cost.bytes += bytes_of(program.tensors[static_cast<size_t>(t)], sizes);
  for (int t : written) cost.bytes += bytes_of(program.tensors[static_cast<size_t>(t)], sizes);
  return cost;
}

StepCost call_cost(const OpaqueCall& call, const Plan& plan, const DimValues& sizes) {
  StepCost cost;
  for (const std::string& name : call.inputs) cost.bytes += bytes_of(plan.tensor(name).decl, sizes);
  for (const std::string& name : call.outputs)
    cost.bytes += bytes_of(plan.tensor(name).decl, sizes);
  return cost;
}

}  // namespace

double bytes_of(const TensorDecl& decl, const DimValues& sizes) {
  const PhysicalShape shape = physical_shape(decl, sizes);
  return static_cast<double>(shape.rows) * static_cast<double>(shape.cols) *
         static_cast<double>(size_of(decl.dtype));
}

RowBlockBytes row_block_bytes(const Plan& plan, int loop, const DimValues& sizes) {
  const DimValues inside = sizes_of_row_block(plan.loops[static_cast<size_t>(loop)], sizes, 0);
  RowBlockBytes bytes;
  for (const PlanTensor& t : plan.tensors) {
    if (t.loop != loop || !t.view_of.empty()) continue;
    bytes.whole += bytes_of(t.decl, sizes);
    bytes.block += bytes_of(t.decl, inside);
  }
  return bytes;
}

// Two Zen 4 or Zen 5 cores, fp32.
Rates cpu_rates() { return {2.5e11, 3e10, 2e-6}; }
// cuBLAS's rate in sustained runs (PEERS.md), the measured rate of a device copy, a launch.
Rates h200_rates() { return {7e14, 4.28e12, 3e-6}; }

StepCost cost_of(const PlanStep& step, const Plan& plan, const DimValues& sizes,
                 const Rates& rates) {
  if (step.loop >= 0) {
    // Costs are per block: tensors that are not sliced, such as weights, are read once per block.
    const RowBlocks& loop = plan.loops[static_cast<size_t>(step.loop)];
    StepCost sum;
    for (int64_t block = 0; block < row_blocks_of(loop, sizes); ++block) {
      PlanStep one{step.name, step.role, step.work, {}};
      if (block > 0 && step.later) one.work = *step.later;
      const StepCost cost = cost_of(one, plan, sizes_of_row_block(loop, sizes, block), rates);
      sum.flops += cost.flops;
      sum.bytes += cost.bytes;
      sum.seconds += cost.seconds;
    }
    return sum;
  }
  const auto* program = std::get_if<Program>(&step.work);
  StepCost cost = program != nullptr ? program_cost(*program, sizes)
                                     : call_cost(std::get<OpaqueCall>(step.work), plan, sizes);
  const double compute = cost.flops / rates.flops_per_second;
  const double memory = cost.bytes / rates.bytes_per_second;
  cost.seconds = cost.flops > 0
                     ? std::max(compute, memory) + kHiddenShare * std::min(compute, memory)
                     : memory + rates.launch_seconds;
  return cost;
}

const PlanTensor& Plan::tensor(std::string_view name) const {
  for (const PlanTensor& t : tensors) {
    if (t.decl.name == name) return t;
  }
  throw Error("the plan has no tensor \"" + std::string(name) + "\"");
}

double saved_bytes(const Plan& plan, const DimValues& sizes) {
  // Tensors that the backward reads and the forward wrote or was given. Parameters and constant
  // tables are resident anyway.
  std::set<std::string> read;
  for (const PlanStep& step : plan.backward) {
    for (const StepTensor& t : step_tensors(step)) {
      if (t.read) read.insert(t.name);
    }
  }
  std::set<std::string> forward;
  for (const PlanStep& step : plan.forward) {
    for (const StepTensor& t : step_tensors(step)) forward.insert(t.name);
  }
  double bytes = 0;
  for (const PlanTensor& t : plan.tensors) {
    const bool kept = t.role == TensorRole::saved || t.role == TensorRole::output ||
                      (t.role == TensorRole::input && !t.is_table);
    if (kept && t.view_of.empty() && read.contains(t.decl.name) && forward.contains(t.decl.name)) {
      bytes += bytes_of(t.decl, sizes);
    }
  }
  return bytes;
}

}  // namespace coda
