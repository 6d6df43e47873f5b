// SPDX-License-Identifier: Apache-2.0
// A program's way from its steps to kernels as text: the stages of the folders below, in order.
#pragma once

#include <memory>
#include <vector>

#include "coda/dim.h"
#include "coda/program.h"
#include "gpu/codegen/gemm_program.h"

namespace coda::gpu {

// A part of a program that is made as it is; mostly the whole.
struct PlannedPart {
  Program program;
  LowerOptions options;                         // of its tensors
  std::shared_ptr<const GemmProgram> products;  // null: it has none
};

struct ProgramPlan {
  KernelPlan plan;
  std::vector<PlannedPart> parts;
};

// A program analysed: its kernels in order, mostly one, each with the ways in which it can be made.
// A program that no kernel holds is split. Throws Error, naming the program, what does not fit and
// the remedy.
ProgramPlan plan_program(const Program& program, const DimValues& sizes,
                         const LowerOptions& options);

// The kernels of that plan, as make() has them.
std::vector<KernelLaunch> lower(const Program& program, const DimValues& sizes,
                                const LowerOptions& options, const SpilledBytes& spilled = {});

// Of the program's first kernel that has products. A choice that another of its kernels cannot take
// is replaced there by the model's.
std::vector<GemmConfig> legal_choices(const Program& program, const DimValues& sizes,
                                      const LowerOptions& options);

}  // namespace coda::gpu
