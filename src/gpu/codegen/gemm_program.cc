// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/gemm_program.h"

#include "coda/error.h"
#include "gpu/codegen/gemm_emitter.h"
#include "gpu/codegen/kernel_names.h"
#include "gpu/codegen/reassociate_fma.h"
#include "gpu/configure/gemm_kernels.h"
#include "gpu/legalise/clone_shared_loads.h"

namespace coda::gpu {

GemmProgram::GemmProgram(const Program& given, const DimValues& sizes, const LowerOptions& options)
    : program_(clone_shared_loads(given)),
      renamed_(reassociate_fma(with_kernel_names(program_))),
      values_(sizes),
      options_(options),
      map_(program::map_tiles(program_)),
      emitted_map_(program::map_tiles(renamed_)),
      as_given_(program_, values_, options_),
      as_emitted_(renamed_, values_, options_) {
  auto kernels = gemm_kernels(as_given_, map_);
  if (const auto* refusal = std::get_if<Refusal>(&kernels)) {
    refusal_ = *refusal;
    return;
  }
  kernels_ = std::get<std::vector<KernelSpaces>>(std::move(kernels));
  emitted_kernels_ = std::get<std::vector<KernelSpaces>>(gemm_kernels(as_emitted_, emitted_map_));
  invariant(kernels_.size() == emitted_kernels_.size(), "kernels that fewer operations change");
}

bool GemmProgram::takes_choice() const {
  return options_.choice && !kernels_.empty() && is_legal(kernels_.front(), *options_.choice);
}

std::vector<RankedChoice> GemmProgram::ranked(size_t kernel) const {
  return rank_choices(as_given_, map_, kernels_[kernel]);
}

int64_t GemmProgram::spilled_bytes(const KernelLaunch& launch) const {
  return options_.spilled_bytes ? options_.spilled_bytes(launch.source) : 0;
}

MadeKernel GemmProgram::make(size_t kernel) const {
  std::optional<MadeKernel> least;
  int64_t least_bytes = 0;
  std::vector<GemmConfig> spilled;
  const std::vector<ChosenConfig> order = config_order(as_given_, map_, kernels_[kernel]);
  for (const ChosenConfig& chosen : order) {
    MadeKernel made{chosen, emit(kernel, chosen.choice)};
    made.chosen.spilled = spilled;
    const int64_t bytes = spilled_bytes(made.launch);
    if (bytes == 0) return made;
    spilled.push_back(made.chosen.choice);
    if (least && bytes >= least_bytes) continue;
    least_bytes = bytes;
    least = std::move(made);
  }
  least->launch.note = "the kernel of program '" + program_.name + "' spills registers with " +
                       (order.size() == 1 ? "" : "every configuration, least with ") +
                       gpu::text(least->chosen.choice);
  return *std::move(least);
}

KernelClass GemmProgram::class_of(size_t kernel) const {
  return gpu::class_of(as_given_, map_, kernels_[kernel]);
}

std::vector<SpaceWork> GemmProgram::work_of(size_t kernel) const {
  return gpu::work_of(as_given_, map_, kernels_[kernel]);
}

KernelLaunch GemmProgram::emit(size_t kernel, const GemmConfig& choice) const {
  const auto made = [&](bool keeps_tables) {
    try {
      return emit_gemm_kernel(as_emitted_, emitted_map_, emitted_kernels_[kernel], choice,
                              keeps_tables);
    } catch (const Error&) {  // said with the caller's names
      emit_gemm_kernel(as_given_, map_, kernels_[kernel], choice, keeps_tables);
      throw;
    }
  };
  KernelLaunch launch = made(true);
  const int64_t bytes = spilled_bytes(launch);
  if (bytes == 0) return launch;
  KernelLaunch other = made(false);
  return spilled_bytes(other) < bytes ? other : launch;
}

}  // namespace coda::gpu
