// SPDX-License-Identifier: Apache-2.0
// Lowers a program without splitting it, to kernels that exchange no intermediate results.
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
  std::shared_ptr<const GemmProgram> products;  // its GEMM kernels; null: none
};

// A refusal where a tile space fits into no kernel. A choice that a kernel cannot take is replaced
// there by the model's. Throws Error, naming the program, where a launch cannot count what is
// asked.
std::variant<WholeProgram, Refusal> plan_whole(const Program& program, const DimValues& sizes,
                                               const LowerOptions& options);

// The refusal without the kernels; nothing if there is none.
std::optional<Refusal> why_not_whole(const Program& program, const DimValues& sizes,
                                     const LowerOptions& options);

// Describe a refusal of plan_whole(). `program` is the program that was given to plan_whole().
std::string why(const Refusal& refusal, const Program& program, const DimValues& sizes);
std::string text(const Refusal& refusal, const Program& program, const DimValues& sizes);

}  // namespace coda::gpu
