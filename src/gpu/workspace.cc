// SPDX-License-Identifier: Apache-2.0
// Takes the maximum over the plan steps: lowers each program and call to find its scratch, and
// computes that of cuDNN's attention from its shape.
#include "gpu/workspace.h"

#include <algorithm>
#include <string_view>

#include "coda/plan.h"
#include "gpu/cudnn/attention_graph.h"
#include "gpu/cudnn/attention_part.h"
#include "gpu/jit/parallel_for.h"
#include "gpu/launch/launched_kernel.h"
#include "gpu/launch/operation_launches.h"
#include "gpu/lower.h"
#include "operations/attention.h"
#include "runtime/operation_call.h"
#include "runtime/plan_programs.h"

namespace coda::gpu {
namespace {

// The memory of a call's kernels: of cuDNN's where it runs the call, else of the operation's own.
int64_t call_bytes(const OpaqueCall& call, const Plan& plan, const DimValues& sizes,
                   const LowerOptions& options, GpuAttention attention) {
  std::vector<TensorDecl> tensors;
  for (const auto* names : {&call.inputs, &call.outputs})
    for (const std::string& name : *names) tensors.push_back(plan.tensor(name).decl);
  const bool is_backward = call.function == "attention_backward";
  OperationCall prepared = operation_call(call, tensors, sizes);
  prepared.gpu_target = options.target->name;
  if (attention != GpuAttention::plain && (call.function == "attention" || is_backward) &&
      !own_attention_is_fastest(prepared) && cudnn::why_not_cudnn(prepared).empty()) {
    const AttentionShape shape = attention_shape(prepared.settings, prepared.tensors[0].rows);
    return cudnn::attention_scratch_bytes(shape, is_backward,
                                          attention == GpuAttention::repeatable);
  }
  if (find_operation(call.function).gpu == nullptr) return 0;
  const std::vector<KernelLaunch> launches = lower_call(call, tensors, sizes, options);
  return launches.empty() ? 0 : scratch_bytes_of(launches.front().scratch);
}

}  // namespace

int64_t workspace_bytes(const Plan& plan, const DimValues& sizes, const LowerOptions& options,
                        GpuAttention attention) {
  const std::vector<AnnouncedProgram> programs = programs_of(plan, sizes);
  std::vector<int64_t> bytes(programs.size(), 0);
  parallel_for(programs.size(), 0, [&](size_t i) {
    LowerOptions strided = options;
    strided.row_strides = programs[i].row_strides;
    strided.owns_padding = programs[i].owns_padding;
    const std::vector<KernelLaunch> launches =
        lower(*programs[i].program, programs[i].sizes, strided);
    if (!launches.empty()) bytes[i] = scratch_bytes_of(launches.front().scratch);
  });
  int64_t most = 0;
  for (const int64_t one : bytes) most = std::max(most, one);
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      if (const auto* call = std::get_if<OpaqueCall>(&step.work))
        most = std::max(most, call_bytes(*call, plan, sizes, options, attention));
    }
  }
  return most;
}

}  // namespace coda::gpu
