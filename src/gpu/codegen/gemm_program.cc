// SPDX-License-Identifier: Apache-2.0
// Analyses the program twice: as given, to choose configurations, and in the form that is emitted
// (with canonical names and fewer operations).
#include "gpu/codegen/gemm_program.h"

#include <algorithm>
#include <memory>
#include <tuple>

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
      as_emitted_(renamed_, values_, options_, program_) {
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

namespace {

// The fields in which the configurations of one kernel differ.
auto what_differs(const GemmConfig& choice) {
  return std::tuple(choice.tile_m, choice.tile_n, choice.cluster_m, choice.cluster_n, choice.stages,
                    choice.schedule);
}

// For each configuration: with `keeps_tables` (gemm_emitter.h), then without.
constexpr size_t kWays = 2;

}  // namespace

// `more`: the number of configurations at the end of `order` that only first_ready() uses.
PlannedKernel GemmProgram::planned(size_t kernel, std::vector<ChosenConfig> order,
                                   size_t more) const {
  const auto shared = std::make_shared<const std::vector<ChosenConfig>>(std::move(order));
  return {.ways = kWays * (shared->size() - more),
          .emit =
              [this, kernel, shared](size_t way) {
                return emit(kernel, (*shared)[way / kWays].choice, way % kWays == 0);
              },
          .spills_note =
              [name = program_.name, shared](size_t way) {
                return "the kernel of program '" + name + "' spills registers with " +
                       (shared->size() == 1 ? "" : "every configuration, least with ") +
                       gpu::text((*shared)[way / kWays].choice);
              },
          .more_ways = kWays * more,
          .name =
              [of_program = std::to_string(kernel) + " of " + text(renamed_), shared](size_t way) {
                return gpu::text((*shared)[way / kWays].choice) +
                       (way % kWays == 0 ? ", kernel " : " without tables, kernel ") + of_program;
              }};
}

PlannedKernel GemmProgram::planned(size_t kernel) const {
  std::vector<ChosenConfig> order = config_order(as_given_, map_, kernels_[kernel]);
  if (takes_choice()) return planned(kernel, std::move(order));
  const size_t first = order.size();
  for (const RankedChoice& one : ranked(kernel)) {
    const auto is_it = [&](const ChosenConfig& other) {
      return what_differs(other.choice) == what_differs(one.choice);
    };
    if (!one.is_crowded && std::none_of(order.begin(), order.end(), is_it))
      order.push_back({one.choice, ChoiceSource::model});
  }
  const size_t more = order.size() - first;
  return planned(kernel, std::move(order), more);
}

PlannedKernel GemmProgram::planned(size_t kernel, const GemmConfig& choice) const {
  return planned(kernel, std::vector<ChosenConfig>{{choice, ChoiceSource::asked}});
}

ChosenConfig GemmProgram::chosen(size_t kernel, const SpilledBytes& spilled) const {
  const std::vector<ChosenConfig> order = config_order(as_given_, map_, kernels_[kernel]);
  const MadeWay made = make(planned(kernel, order), spilled);
  ChosenConfig chosen = order[made.way / kWays];
  for (const size_t way : made.spilled) {
    if (way % kWays == 0 && way / kWays != made.way / kWays)
      chosen.spilled.push_back(order[way / kWays].choice);
  }
  return chosen;
}

KernelClass GemmProgram::class_of(size_t kernel) const {
  return gpu::class_of(as_given_, map_, kernels_[kernel]);
}

std::vector<SpaceWork> GemmProgram::work_of(size_t kernel) const {
  return gpu::work_of(as_given_, map_, kernels_[kernel]);
}

KernelLaunch GemmProgram::emit(size_t kernel, const GemmConfig& choice, bool keeps_tables) const {
  return emit_gemm_kernel(as_emitted_, emitted_map_, emitted_kernels_[kernel], choice,
                          keeps_tables);
}

}  // namespace coda::gpu
