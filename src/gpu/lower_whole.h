// SPDX-License-Identifier: Apache-2.0
// A program as it is, as launches that share nothing: without splitting it.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpu/codegen/kernel_launch.h"
#include "gpu/configure/choose_config.h"
#include "gpu/legalise/lower_options.h"

namespace coda::gpu {

struct WholeProgram {
  std::vector<KernelLaunch> launches;
  bool has_products = false;
  bool takes_choice = false;  // its first kernel with products is made as options.choice says
};

// A refusal where a tile space fits into no kernel. A choice that a kernel cannot take is replaced
// there by the model's. Throws Error, naming the program, where a launch cannot count what is
// asked.
std::variant<WholeProgram, Refusal> lower_whole(const Program& program, const DimValues& sizes,
                                                const LowerOptions& options);

// The refusal without the kernels; nothing if there is none.
std::optional<Refusal> why_not_whole(const Program& program, const DimValues& sizes,
                                     const LowerOptions& options);

// Its words: its steps are of the program as lower_whole() has it.
std::string why(const Refusal& refusal, const Program& program, const DimValues& sizes);
std::string text(const Refusal& refusal, const Program& program, const DimValues& sizes);

}  // namespace coda::gpu
