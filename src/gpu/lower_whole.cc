// SPDX-License-Identifier: Apache-2.0
// Groups tile spaces into kernels: spaces with a product share kernels where possible, spaces
// without a product get their own kernels, spaces that only plain kernels support get plain
// kernels, and programs over vectors get finalizer kernels. Spaces are independent, so their order
// is free.
#include "gpu/lower_whole.h"

#include <algorithm>
#include <memory>

#include "coda/error.h"
#include "gpu/codegen/finalizer_emitter.h"
#include "gpu/codegen/kernel_names.h"
#include "gpu/codegen/plain_kernels.h"
#include "gpu/codegen/tile_emitter.h"
#include "gpu/configure/gemm_kernels.h"
#include "gpu/legalise/clone_shared_loads.h"
#include "gpu/legalise/plain_spaces.h"

namespace coda::gpu {
namespace {

bool has_tiles(const program::TileMap& map) {
  return std::find(map.on_tile.begin(), map.on_tile.end(), 1) != map.on_tile.end();
}

// Which kind of kernel makes each tile space.
struct SpaceKinds {
  std::vector<int> plain;
  std::vector<int> tiles;  // other spaces without a GEMM
};
SpaceKinds kinds_of(const Program& program, const program::TileMap& map, const DimValues& sizes) {
  SpaceKinds kinds;
  for (size_t i = 0; i < map.spaces.size(); ++i) {
    if (is_plain(program, map.spaces[i], sizes)) {
      kinds.plain.push_back(static_cast<int>(i));
    } else if (!has_gemm(program, map.spaces[i])) {
      kinds.tiles.push_back(static_cast<int>(i));
    }
  }
  return kinds;
}

std::optional<Refusal> why_no_tiles(const Program& program, const program::TileMap& map,
                                    const SpaceKinds& kinds, const DimValues& sizes) {
  for (int space : kinds.tiles) {
    const auto found = layouts_of_warp(program, map, map.spaces[space], sizes);
    if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  }
  return std::nullopt;
}

// The kernels for a program's vectors, or for its tile spaces without tensor cores. The text uses
// canonical names, which layers share; errors use the caller's names.
std::vector<KernelLaunch> lower_others(const Program& program, const program::TileMap& map,
                                       const SpaceKinds& kinds, const DimValues& values,
                                       const LowerOptions& options) {
  const Program named = with_kernel_names(program);
  const ProgramSizes sizes(named, values, options, program);
  if (!has_tiles(map)) return lower_finalizer(sizes);
  std::vector<KernelLaunch> launches;
  for (int space : kinds.plain) launches.push_back(lower_plain(sizes, map.spaces[space]));
  if (!kinds.tiles.empty()) launches.push_back(lower_tile_spaces(sizes, kinds.tiles));
  return launches;
}

}  // namespace

std::variant<WholeProgram, Refusal> plan_whole(const Program& given, const DimValues& sizes,
                                               const LowerOptions& options) {
  WholeProgram result;
  const Program program = clone_shared_loads(given);
  const program::TileMap map = program::map_tiles(program);
  const SpaceKinds kinds = kinds_of(program, map, sizes);
  const auto refuse_tiles = why_no_tiles(program, map, kinds, sizes);
  if (kinds.plain.size() + kinds.tiles.size() != map.spaces.size()) {
    const auto products = std::make_shared<const GemmProgram>(given, sizes, options);
    if (products->refusal()) return *products->refusal();
    result.products = products;
  }
  if (refuse_tiles) return *refuse_tiles;
  for (size_t i = 0; result.products && i < result.products->kernels(); ++i) {
    PlannedKernel kernel = result.products->planned(i);
    kernel.emit = [products = result.products, emit = std::move(kernel.emit)](size_t way) {
      return emit(way);
    };
    result.plan.kernels.push_back(std::move(kernel));
  }
  KernelPlan others(lower_others(program, map, kinds, sizes, options));
  for (PlannedKernel& kernel : others.kernels) result.plan.kernels.push_back(std::move(kernel));
  return result;
}

std::optional<Refusal> why_not_whole(const Program& given, const DimValues& sizes,
                                     const LowerOptions& options) {
  const Program program = clone_shared_loads(given);
  const program::TileMap map = program::map_tiles(program);
  if (!has_tiles(map)) return std::nullopt;
  const auto kernels = gemm_kernels(ProgramSizes(program, sizes, options), map);
  if (const auto* refusal = std::get_if<Refusal>(&kernels)) return *refusal;
  return why_no_tiles(program, map, kinds_of(program, map, sizes), sizes);
}

std::string why(const Refusal& refusal, const Program& program, const DimValues& sizes) {
  return why(refusal, ProgramSizes(clone_shared_loads(program), sizes, {}));
}

std::string text(const Refusal& refusal, const Program& program, const DimValues& sizes) {
  return text(refusal, ProgramSizes(clone_shared_loads(program), sizes, {}));
}

}  // namespace coda::gpu
