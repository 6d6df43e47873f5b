// SPDX-License-Identifier: Apache-2.0
// Lowers a program to kernel sources by running the stages in the folders of src/gpu in order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coda/dim.h"
#include "coda/program.h"
#include "gpu/codegen/gemm_program.h"

namespace coda::gpu {

// A part of a program that is lowered as a unit; usually the whole program.
struct PlannedPart {
  Program program;
  LowerOptions options;                         // for the part's tensors
  std::shared_ptr<const GemmProgram> products;  // its GEMM kernels; null: none
};

struct ProgramPlan {
  KernelPlan plan;
  std::vector<PlannedPart> parts;
};

// Why the target has no kernels for 8-bit floats; empty: it has.
std::string why_no_eight_bits(const Target& target);
// Why the target has no kernels for this program, naming the tensor and the remedy; empty: it has.
std::string why_not_supported(const Program& program, const Target& target);

// Analyses a program: its kernels in order (usually one), each with the ways to emit it. If a
// program does not fit into kernels, it is split. Throws Error naming the program, what does not
// fit and the remedy.
ProgramPlan plan_program(const Program& program, const DimValues& sizes,
                         const LowerOptions& options);

// The kernels of the plan, as make() chooses them.
std::vector<KernelLaunch> lower(const Program& program, const DimValues& sizes,
                                const LowerOptions& options, const SpilledBytes& spilled = {});

// The configurations that the program's first GEMM kernel can have. If another kernel of the
// program cannot have the chosen configuration, that kernel gets the model's choice.
std::vector<GemmConfig> legal_choices(const Program& program, const DimValues& sizes,
                                      const LowerOptions& options);

}  // namespace coda::gpu
