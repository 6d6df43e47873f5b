// SPDX-License-Identifier: Apache-2.0
// The analysed GEMM kernels of a program. A KernelPlan emits them, `coda tune` measures them, and
// `coda emit --choices` lists their configurations.
#pragma once

#include "gpu/codegen/kernel_plan.h"
#include "gpu/configure/chosen_config.h"

namespace coda::gpu {

class GemmProgram {
 public:
  GemmProgram(const Program& given, const DimValues& sizes, const LowerOptions& options);
  GemmProgram(const GemmProgram&) = delete;
  GemmProgram& operator=(const GemmProgram&) = delete;

  // The reason that the program cannot become kernels; kernels() is then 0.
  const std::optional<Refusal>& refusal() const { return refusal_; }
  // The number of GEMM kernels; 0 for a program without products.
  size_t kernels() const { return kernels_.size(); }
  // The program that the kernels are emitted from: after clone_shared_loads, with_kernel_names and
  // reassociate_fma.
  const Program& program() const { return renamed_; }

  // Whether the first kernel can have the configuration of the options' choice. A kernel that
  // cannot have it gets the model's choice instead.
  bool takes_choice() const;

  std::vector<RankedChoice> ranked(size_t kernel) const;
  KernelClass class_of(size_t kernel) const;
  std::vector<SpaceWork> work_of(size_t kernel) const;

  // The ways are the configurations of config_order(), each with and without `keeps_tables`; more
  // ways are all other configurations that have enough registers. The second overload has the ways
  // of a single choice, which must be one of ranked(). The result refers to this object, which must
  // outlive it.
  PlannedKernel planned(size_t kernel) const;
  PlannedKernel planned(size_t kernel, const GemmConfig& choice) const;
  // The configuration of the way that make(planned(kernel), spilled) returns.
  ChosenConfig chosen(size_t kernel, const SpilledBytes& spilled = {}) const;
  KernelLaunch emit(size_t kernel, const GemmConfig& choice, bool keeps_tables = true) const;

 private:
  PlannedKernel planned(size_t kernel, std::vector<ChosenConfig> order, size_t more = 0) const;

  // Configurations are chosen for the program as the caller wrote it (program_). Kernels are
  // emitted from renamed_, which has names that equal layers share, and no superfluous operations.
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
