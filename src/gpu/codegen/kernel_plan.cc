// SPDX-License-Identifier: Apache-2.0
// Chooses among the ways to emit a kernel by the spills that the compiler reported, or by what is
// compiled.
#include "gpu/codegen/kernel_plan.h"

namespace coda::gpu {

KernelPlan::KernelPlan(std::vector<KernelLaunch> launches) {
  for (KernelLaunch& launch : launches)
    kernels.push_back({.ways = 1,
                       .emit = [launch = std::move(launch)](size_t) { return launch; },
                       .spills_note = {},
                       .name = {}});
}

MadeWay make(const PlannedKernel& kernel, const SpilledBytes& spilled) {
  std::optional<MadeWay> least;
  std::vector<size_t> before;
  for (size_t way = 0; way < kernel.ways; ++way) {
    MadeWay made{way, kernel.emit(way), 0, before};
    const int64_t bytes = spilled ? spilled(made.launch.source) : 0;
    if (bytes == 0) return made;
    made.spilled_bytes = bytes;
    before.push_back(way);
    if (least && bytes >= least->spilled_bytes) continue;
    least = std::move(made);
  }
  if (kernel.spills_note) {
    const std::string note = kernel.spills_note(least->way);
    least->launch.note = least->launch.note.empty() ? note : least->launch.note + "; " + note;
  }
  return *std::move(least);
}

std::optional<KernelLaunch> first_ready(
    const PlannedKernel& kernel, const std::function<bool(const std::string& source)>& is_ready,
    const std::function<bool(const std::string& name)>& may_be) {
  for (size_t way = 0; way < kernel.ways + kernel.more_ways; ++way) {
    if (may_be && kernel.name && !may_be(kernel.name(way))) continue;
    KernelLaunch launch = kernel.emit(way);
    if (is_ready(launch.source)) return launch;
  }
  return std::nullopt;
}

std::vector<KernelLaunch> make(const KernelPlan& plan, const SpilledBytes& spilled) {
  std::vector<KernelLaunch> launches;
  for (const PlannedKernel& kernel : plan.kernels) launches.push_back(make(kernel, spilled).launch);
  return launches;
}

}  // namespace coda::gpu
