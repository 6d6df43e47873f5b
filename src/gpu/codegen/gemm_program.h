// SPDX-License-Identifier: Apache-2.0
// A program's kernels with products, ready to be made with any configuration: what lower() emits,
// `coda tune` measures and `coda emit --choices` lists.
#pragma once

#include "gpu/codegen/kernel_launch.h"
#include "gpu/configure/chosen_config.h"

namespace coda::gpu {

struct MadeKernel {
  ChosenConfig chosen;
  KernelLaunch launch;
};

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
  // With the first of config_order() that is not known to spill; if all are, with the one that
  // spills least, which its note says.
  MadeKernel make(size_t kernel) const;
  ChosenConfig chosen(size_t kernel) const { return make(kernel).chosen; }
  // `choice` is one of ranked(). Tables are kept unless that is known to spill.
  KernelLaunch emit(size_t kernel, const GemmConfig& choice) const;
  bool spills(size_t kernel, const GemmConfig& choice) const {  // as far as it is known
    return spilled_bytes(emit(kernel, choice)) != 0;
  }

 private:
  int64_t spilled_bytes(const KernelLaunch& launch) const;

  // What is refused is named as the caller named it, and configurations are chosen for what the
  // caller wrote; text has names that layers share, and no more operations than it needs.
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
