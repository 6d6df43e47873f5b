// SPDX-License-Identifier: Apache-2.0
// A program as launches: as it is if it can be, else split into parts that can.
#include "gpu/lower.h"

#include "coda/error.h"
#include "gpu/codegen/gemm_program.h"
#include "gpu/codegen/kernel_launch.h"
#include "gpu/lower_parts.h"
#include "gpu/lower_whole.h"

namespace coda::gpu {
namespace {

void require_choice(bool takes_choice, const Program& program, const DimValues& sizes,
                    const LowerOptions& options) {
  if (!options.choice) return;
  require(takes_choice, ProgramSizes(program, sizes, options).description() +
                            ": its products cannot be made with " + text(*options.choice) +
                            "; choose one of legal_choices()");
}

WholeProgram made_whole(const Program& program, const DimValues& sizes,
                        const LowerOptions& options) {
  auto made = lower_whole(program, sizes, options);
  if (const auto* refusal = std::get_if<Refusal>(&made))
    throw Error(text(*refusal, program, sizes));
  return std::get<WholeProgram>(std::move(made));
}

// Throws what the whole program is refused with if no split helps, and why none does.
std::vector<KernelLaunch> lower_split(const Program& program, const DimValues& sizes,
                                      const LowerOptions& options, const Refusal& whole) {
  const LoweredParts parts = split_to_fit(program, sizes, options);
  if (parts.parts.empty()) {
    std::string message = text(whole, program, sizes);
    if (parts.refused) {
      const std::string other = text(parts.refused->refusal, parts.refused->program, sizes);
      if (other != message) message += "; but a split does not help: " + other;
    }
    throw Error(message);
  }
  std::vector<KernelLaunch> launches;
  const std::string note = "program '" + program.name + "' is split into " +
                           std::to_string(parts.parts.size()) +
                           ", since no kernel holds it: " + why(whole, program, sizes);
  bool has_products = false;
  for (const LoweredPart& one : parts.parts) {
    LowerOptions own = one.options;
    if (has_products) own.choice.reset();
    WholeProgram made = made_whole(one.part.program, sizes, own);
    if (made.has_products && !has_products) {
      has_products = true;
      require_choice(made.takes_choice, program, sizes, options);
    }
    for (KernelLaunch& launch : made.launches) {
      for (TensorMapSpec& map : launch.maps) map.tensor = one.part.tensors[map.tensor];
      for (int& tensor : launch.pointers)
        if (tensor != kTileCounter) tensor = one.part.tensors[tensor];
      launch.scratch = parts.scratch;
      launch.note = launch.note.empty() ? note : note + "; " + launch.note;
      launches.push_back(std::move(launch));
    }
  }
  return launches;
}

}  // namespace

std::vector<KernelLaunch> lower(const Program& program, const DimValues& sizes,
                                const LowerOptions& options) {
  invariant(options.row_strides.empty() || options.row_strides.size() == program.tensors.size(),
            "a row stride for each tensor");
  auto made = lower_whole(program, sizes, options);
  if (const auto* refusal = std::get_if<Refusal>(&made))
    return lower_split(program, sizes, options, *refusal);
  auto& whole = std::get<WholeProgram>(made);
  if (whole.has_products) require_choice(whole.takes_choice, program, sizes, options);
  return std::move(whole.launches);
}

std::vector<GemmConfig> legal_choices(const Program& program, const DimValues& sizes,
                                      const LowerOptions& options) {
  std::vector<GemmConfig> choices;
  for (const LoweredPart& one : parts_of(program, sizes, options)) {
    LowerOptions unchosen = one.options;
    unchosen.choice.reset();
    const GemmProgram part(one.part.program, sizes, unchosen);
    if (part.kernels() == 0) continue;
    for (const RankedChoice& ranked : part.ranked(0)) choices.push_back(ranked.choice);
    break;
  }
  return choices;
}

}  // namespace coda::gpu
