// SPDX-License-Identifier: Apache-2.0
// A program as it is, as kernels that share nothing: without splitting it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "gpu/codegen/gemm_program.h"
#include "gpu/legalise/lower_options.h"

namespace coda::gpu {

struct WholeProgram {
  KernelPlan plan;
  std::shared_ptr<const GemmProgram> products;  // null: it has none
};

// A refusal where a tile space fits into no kernel. A choice that a kernel cannot take is replaced
// there by the model's. Throws Error, naming the program, where a launch cannot count what is
// asked.
std::variant<WholeProgram, Refusal> plan_whole(const Program& program, const DimValues& sizes,
                                               const LowerOptions& options);

// The refusal without the kernels; nothing if there is none.
std::optional<Refusal> why_not_whole(const Program& program, const DimValues& sizes,
                                     const LowerOptions& options);

// Its words: its steps are of the program as plan_whole() has it.
std::string why(const Refusal& refusal, const Program& program, const DimValues& sizes);
std::string text(const Refusal& refusal, const Program& program, const DimValues& sizes);

}  // namespace coda::gpu
