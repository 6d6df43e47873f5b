// SPDX-License-Identifier: Apache-2.0
// A space whose planes fit into no configuration's shared memory, or whose epilogue into no
// configuration's registers, moves more of its tensors directly.
#include "hopper/configure/gemm_kernels.h"

#include <algorithm>

#include "coda/error.h"
#include "hopper/legalise/plain_spaces.h"

namespace coda::hopper {
namespace {

constexpr int kMostPlanes = 8;

KernelSpaces alone(const ProgramSizes& sizes, const program::TileMap& map, int space) {
  for (int planes = kMostPlanes; planes >= 0; --planes) {
    KernelSpaces kernel{{analyse_space(sizes, map, space, {planes})}};
    if (has_choice(sizes, kernel)) return kernel;
  }
  throw Error(sizes.description() + ": the epilogue of tile space " + std::to_string(space) +
              " fits into no tile: it has more values than 232 registers a thread beside its "
              "accumulators; store some values and go on in another program");
}

}  // namespace

std::vector<KernelSpaces> gemm_kernels(const ProgramSizes& sizes, const program::TileMap& map) {
  std::vector<KernelSpaces> kernels;
  for (size_t space = 0; space < map.spaces.size(); ++space) {
    if (!has_gemm(sizes.program(), map.spaces[space])) continue;
    if (is_plain(sizes.program(), map.spaces[space], sizes.values())) continue;
    KernelSpaces kernel = alone(sizes, map, static_cast<int>(space));
    const SpaceAnalysis& own = kernel.spaces.front();
    const auto can_join = [&](const KernelSpaces& other) {
      if (other.spaces.front().layout != own.layout || other.spaces.front().element != own.element)
        return false;
      KernelSpaces together = other;
      together.spaces.push_back(own);
      return has_choice(sizes, together);
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

}  // namespace coda::hopper
