// SPDX-License-Identifier: Apache-2.0
// Lowers a program to launches: as a whole if possible, else split into parts.
#include "gpu/lower.h"

#include <utility>

#include "coda/error.h"
#include "gpu/lower_parts.h"
#include "gpu/lower_whole.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

void require_choice(const GemmProgram& products, const Program& program, const DimValues& sizes,
                    const LowerOptions& options) {
  require(!options.choice || products.takes_choice(),
          ProgramSizes(program, sizes, options).description() +
              ": its products cannot be made with " +
              (options.choice ? text(*options.choice) : "") + "; choose one of legal_choices()");
}

void require_types(const Program& program, const DimValues& sizes, const LowerOptions& options) {
  const std::string why = why_not_supported(program, *options.target);
  require(why.empty(), ProgramSizes(program, sizes, options).description() + ": " + why);
}

// Renumbers the tensors of a part's launches: from the part's to the whole program's.
PlannedKernel of_whole(PlannedKernel kernel, std::vector<int> tensors,
                       std::vector<ScratchTensor> scratch, std::string note) {
  kernel.emit = [emit = std::move(kernel.emit), tensors = std::move(tensors),
                 scratch = std::move(scratch), note = std::move(note)](size_t way) {
    KernelLaunch launch = emit(way);
    for (TensorMapSpec& map : launch.maps) map.tensor = tensors[map.tensor];
    for (int& tensor : launch.pointers)
      if (tensor != kTileCounter) tensor = tensors[tensor];
    launch.scratch = scratch;
    launch.note = launch.note.empty() ? note : note + "; " + launch.note;
    return launch;
  };
  return kernel;
}

// If no split helps, throws Error with the refusal of the whole program and the reason that a split
// does not help.
ProgramPlan plan_split(const Program& program, const DimValues& sizes, const LowerOptions& options,
                       const Refusal& whole) {
  const LoweredParts parts = split_to_fit(program, sizes, options);
  if (parts.parts.empty()) {
    std::string message = text(whole, program, sizes);
    if (parts.refused) {
      const std::string other = text(parts.refused->refusal, parts.refused->program, sizes);
      if (other != message) message += "; but a split does not help: " + other;
    }
    throw Error(message);
  }
  const std::string note = "program '" + program.name + "' is split into " +
                           std::to_string(parts.parts.size()) +
                           ", since no kernel holds it: " + why(whole, program, sizes);
  ProgramPlan result;
  bool has_products = false;
  for (const LoweredPart& one : parts.parts) {
    LowerOptions own = one.options;
    if (has_products) own.choice.reset();
    auto made = plan_whole(one.part.program, sizes, own);
    if (const auto* refusal = std::get_if<Refusal>(&made))
      throw Error(text(*refusal, one.part.program, sizes));
    auto& part = std::get<WholeProgram>(made);
    if (part.products && !has_products) {
      has_products = true;
      require_choice(*part.products, program, sizes, options);
    }
    for (PlannedKernel& kernel : part.plan.kernels) {
      result.plan.kernels.push_back(
          of_whole(std::move(kernel), one.part.tensors, parts.scratch, note));
    }
    result.parts.push_back({one.part.program, one.options, part.products});
  }
  return result;
}

}  // namespace

std::string why_no_eight_bits(const Target& target) {
  if (target.has_eight_bits) return "";
  return "8-bit floats, which the target " + std::string(target.name) +
         " does not support: RTX 40 and 50, L4, L40S, RTX Ada and RTX PRO Blackwell have them "
         "(target sm89), H100 and H200 (sm90)";
}

std::string why_not_supported(const Program& program, const Target& target) {
  const std::string why = why_no_eight_bits(target);
  if (why.empty()) return "";
  for (const TensorDecl& tensor : program.tensors) {
    if (tensor.dtype == DType::e4m3 || tensor.dtype == DType::e5m2)
      return "tensor '" + tensor.name + "' has " + why + "; store it in bf16 or f16";
  }
  return "";
}

ProgramPlan plan_program(const Program& given, const DimValues& sizes,
                         const LowerOptions& options) {
  const Program program = program::with_numbers_for_sizes(given, sizes);
  invariant(options.row_strides.empty() || options.row_strides.size() == program.tensors.size(),
            "a row stride for each tensor");
  require_types(program, sizes, options);
  auto made = plan_whole(program, sizes, options);
  if (const auto* refusal = std::get_if<Refusal>(&made))
    return plan_split(program, sizes, options, *refusal);
  auto& whole = std::get<WholeProgram>(made);
  if (whole.products) require_choice(*whole.products, program, sizes, options);
  return {std::move(whole.plan), {{program, options, whole.products}}};
}

std::vector<KernelLaunch> lower(const Program& program, const DimValues& sizes,
                                const LowerOptions& options, const SpilledBytes& spilled) {
  return make(plan_program(program, sizes, options).plan, spilled);
}

std::vector<GemmConfig> legal_choices(const Program& program, const DimValues& sizes,
                                      const LowerOptions& options) {
  LowerOptions unchosen = options;
  unchosen.choice.reset();
  std::vector<GemmConfig> choices;
  for (const PlannedPart& part : plan_program(program, sizes, unchosen).parts) {
    if (part.products == nullptr || part.products->kernels() == 0) continue;
    for (const RankedChoice& ranked : part.products->ranked(0)) choices.push_back(ranked.choice);
    break;
  }
  return choices;
}

}  // namespace coda::gpu
