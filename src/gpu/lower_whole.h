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

// Returns a refusal if a tile space fits into no kernel. A kernel that cannot have the requested
// configuration gets the model's choice. Throws Error, naming the program, if a size exceeds what a
// launch can count.
std::variant<WholeProgram, Refusal> plan_whole(const Program& program, const DimValues& sizes,
                                               const LowerOptions& options);

// Only the refusal; none if the program fits.
std::optional<Refusal> why_not_whole(const Program& program, const DimValues& sizes,
                                     const LowerOptions& options);

// Describe a refusal of plan_whole(). `program` is the program that was given to plan_whole().
std::string why(const Refusal& refusal, const Program& program, const DimValues& sizes);
std::string text(const Refusal& refusal, const Program& program, const DimValues& sizes);

}  // namespace coda::gpu
