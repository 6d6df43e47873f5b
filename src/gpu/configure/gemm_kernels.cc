// SPDX-License-Identifier: Apache-2.0
// If a space's planes do not fit into the shared memory of any configuration, or its epilogue into
// the registers, more of its tensors are moved directly by threads.
#include "gpu/configure/gemm_kernels.h"

#include <algorithm>

#include "gpu/legalise/plain_spaces.h"

namespace coda::gpu {
namespace {

std::variant<KernelSpaces, Refusal> alone(const ProgramSizes& sizes, const program::TileMap& map,
                                          int space) {
  std::string uses;
  const Target& target = sizes.target();
  for (int planes = target.planes.most; planes >= 0; --planes) {
    auto analysis = analyse_space(sizes, map, space, {planes});
    if (const auto* refusal = std::get_if<Refusal>(&analysis)) return *refusal;
    KernelSpaces kernel{&target, {std::get<SpaceAnalysis>(std::move(analysis))}};
    if (has_room(sizes, kernel)) return kernel;
    if (planes == 0) uses = largest_register_uses(sizes, kernel.spaces.front());
  }
  return Refusal{.reason = RefusalReason::registers,
                 .value = space,
                 .budget = target.registers,
                 .uses = std::move(uses)};
}

}  // namespace

std::variant<std::vector<KernelSpaces>, Refusal> gemm_kernels(const ProgramSizes& sizes,
                                                              const program::TileMap& map) {
  std::vector<KernelSpaces> kernels;
  for (size_t space = 0; space < map.spaces.size(); ++space) {
    if (!has_gemm(sizes.program(), map.spaces[space])) continue;
    if (is_plain(sizes.program(), map.spaces[space], sizes.values())) continue;
    auto made = alone(sizes, map, static_cast<int>(space));
    if (const auto* refusal = std::get_if<Refusal>(&made)) return *refusal;
    auto& kernel = std::get<KernelSpaces>(made);
    const SpaceAnalysis& own = kernel.spaces.front();
    const auto can_join = [&](const KernelSpaces& other) {
      if (!other.spaces.front().multiplies_as(own)) return false;
      KernelSpaces together = other;
      together.spaces.push_back(own);
      return has_room(sizes, together);
    };
    const auto joined = std::find_if(kernels.begin(), kernels.end(), can_join);
    if (joined != kernels.end()) {
      joined->spaces.push_back(own);
    } else {
      kernels.push_back(std::move(kernel));
    }
  }
  return kernels;
}

}  // namespace coda::gpu
