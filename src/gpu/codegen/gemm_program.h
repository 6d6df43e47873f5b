// SPDX-License-Identifier: Apache-2.0
// A program's kernels with products, analysed: what a KernelPlan emits, `coda tune` measures and
// `coda emit --choices` lists.
#pragma once

#include "gpu/codegen/kernel_plan.h"
#include "gpu/configure/chosen_config.h"

namespace coda::gpu {

class GemmProgram {
 public:
  GemmProgram(const Program& given, const DimValues& sizes, const LowerOptions& options);
  GemmProgram(const GemmProgram&) = delete;
  GemmProgram& operator=(const GemmProgram&) = delete;

  // Why no kernel can be made of it; then it has none.
  const std::optional<Refusal>& refusal() const { return refusal_; }
  // Kernels with products; 0 for programs that have none.
  size_t kernels() const { return kernels_.size(); }
  // The program as kernels have it: with_kernel_names and reassociate_fma of one whose
  // products are separate.
  const Program& program() const { return renamed_; }

  // Whether the first is made as the options' choice says. Where a kernel cannot be, the choice is
  // replaced there.
  bool takes_choice() const;

  std::vector<RankedChoice> ranked(size_t kernel) const;
  KernelClass class_of(size_t kernel) const;
  std::vector<SpaceWork> work_of(size_t kernel) const;

  // Its ways are those of config_order(), each with tables kept and without; or those of one
  // choice, which is one of ranked(). Refers to this program, which outlives it.
  PlannedKernel planned(size_t kernel) const;
  PlannedKernel planned(size_t kernel, const GemmConfig& choice) const;
  // The configuration that make(planned(kernel), spilled) has.
  ChosenConfig chosen(size_t kernel, const SpilledBytes& spilled = {}) const;
  KernelLaunch emit(size_t kernel, const GemmConfig& choice, bool keeps_tables = true) const;

 private:
  PlannedKernel planned(size_t kernel, std::vector<ChosenConfig> order) const;

  // Configurations are chosen for what the caller wrote; text has names that layers share, and no
  // more operations than it needs.
  Program program_;
  Program renamed_;
  DimValues values_;
  LowerOptions options_;
  program::TileMap map_;  // of program_
  program::TileMap emitted_map_;
  ProgramSizes as_given_;
  ProgramSizes as_emitted_;
  std::optional<Refusal> refusal_;
  std::vector<KernelSpaces> kernels_;
  std::vector<KernelSpaces> emitted_kernels_;
};

}  // namespace coda::gpu
