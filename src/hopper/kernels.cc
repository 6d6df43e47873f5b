// SPDX-License-Identifier: Apache-2.0
// The public functions about kernels (coda/kernels.h), of the backend's parts.
#include "coda/kernels.h"

#include <set>
#include <utility>

#include "hopper/codegen/gemm_program.h"
#include "hopper/codegen/kernel_launch.h"
#include "hopper/jit/kernel_builder.h"
#include "hopper/jit/parallel_for.h"
#include "hopper/launch/operation_launches.h"
#include "hopper/lower.h"
#include "hopper/lower_parts.h"
#include "hopper/tuned_file.h"
#include "runtime/plan_programs.h"

namespace coda {

namespace {

hopper::LowerOptions lowering_of(const KernelOptions& options) {
  hopper::LowerOptions lowering;
  lowering.multiprocessors = options.multiprocessors;
  lowering.tuned =
      hopper::load_tuned_rows(hopper::latest_tuned_file(hopper::default_cache_folder()));
  return lowering;
}

}  // namespace

std::vector<KernelChoice> kernel_choices(const Plan& plan, const DimValues& sizes,
                                         const KernelOptions& options) {
  const hopper::LowerOptions lowering = lowering_of(options);
  std::vector<KernelChoice> choices;
  for (const AnnouncedProgram& one : programs_of(plan, sizes)) {
    for (const hopper::LoweredPart& part : hopper::parts_of(*one.program, one.sizes, lowering)) {
      const hopper::GemmProgram program(part.part.program, one.sizes, part.options);
      for (size_t kernel = 0; kernel < program.kernels(); ++kernel) {
        const hopper::ChosenConfig chosen = program.chosen(kernel);
        const hopper::KernelClass own = program.class_of(kernel);
        choices.push_back({part.part.program.name,
                           hopper::text(chosen.choice),
                           hopper::text(chosen),
                           own.name,
                           hopper::text(own.extents),
                           {}});
        for (const hopper::RankedChoice& ranked : program.ranked(kernel))
          choices.back().ranked.push_back(hopper::text(ranked.choice));
      }
    }
  }
  return choices;
}

std::vector<KernelText> emit_kernels(const Plan& plan, const DimValues& sizes,
                                     const KernelOptions& options) {
  const hopper::LowerOptions lowering = lowering_of(options);
  std::vector<KernelText> kernels;
  std::set<std::string> seen;
  const auto add = [&](const std::string& program, std::vector<hopper::KernelLaunch> launches) {
    for (hopper::KernelLaunch& launch : launches) {
      if (!seen.insert(launch.source).second) continue;
      kernels.push_back({program, std::move(launch.source), launch.grid, launch.cluster,
                         launch.threads, launch.shared_bytes, std::move(launch.note)});
    }
  };
  for (const AnnouncedProgram& one : programs_of(plan, sizes))
    add(one.program->name, hopper::lower(*one.program, one.sizes, lowering));
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      const auto* call = std::get_if<OpaqueCall>(&step.work);
      // Work that an operation's own function enqueues has no text.
      if (call == nullptr || find_operation(call->function).gpu_function != nullptr) continue;
      std::vector<TensorDecl> tensors;
      for (const auto* names : {&call->inputs, &call->outputs})
        for (const std::string& name : *names) tensors.push_back(plan.tensor(name).decl);
      add(call->function, hopper::lower_call(*call, tensors, sizes, lowering));
    }
  }
  return kernels;
}

Precompiled precompile(const Plan& plan, const DimValues& sizes, const KernelOptions& options) {
  const std::vector<KernelText> kernels = emit_kernels(plan, sizes, options);
  hopper::KernelBuilder builder;
  Precompiled result;
  result.kernels = std::ssize(kernels);
  result.compiler =
      "NVRTC " + builder.compiler().version().text() + " at " + builder.compiler().location();
  std::vector<std::string> defects(kernels.size());
  hopper::parallel_for(kernels.size(), options.threads, [&](size_t i) {
    const std::string& program = kernels[i].program;
    const hopper::CompiledKernel kernel = builder.build(program, kernels[i].source);
    if (!kernel.defect.empty())
      defects[i] = "the kernel of program '" + program + "': " + kernel.defect;
  });
  std::erase(defects, "");
  result.defects = std::move(defects);
  result.compiled = builder.cache().misses();
  result.folder = builder.cache().folder();
  return result;
}

}  // namespace coda
