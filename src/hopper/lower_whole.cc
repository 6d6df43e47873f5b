// SPDX-License-Identifier: Apache-2.0
// Tile spaces with products together where they can be, those without by kernels of their own, what
// only plain kernels take by these,
// programs over vectors by finalizer kernels. Spaces are independent, so their order is free.
#include "hopper/lower_whole.h"

#include <algorithm>

#include "coda/error.h"
#include "hopper/codegen/finalizer_emitter.h"
#include "hopper/codegen/gemm_program.h"
#include "hopper/codegen/kernel_names.h"
#include "hopper/codegen/plain_kernels.h"
#include "hopper/codegen/tile_emitter.h"
#include "hopper/configure/gemm_kernels.h"
#include "hopper/legalise/plain_spaces.h"
#include "hopper/legalise/separate_spaces.h"

namespace coda::hopper {
namespace {

bool has_tiles(const program::TileMap& map) {
  return std::find(map.on_tile.begin(), map.on_tile.end(), 1) != map.on_tile.end();
}

// Which kind of kernel makes each tile space.
struct SpaceKinds {
  std::vector<int> plain;
  std::vector<int> tiles;  // the others without products
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

}  // namespace

WholeProgram lower_whole(const Program& given, const DimValues& sizes,
                         const LowerOptions& options) {
  WholeProgram result;
  const Program program = with_separate_products(given);
  const program::TileMap map = program::map_tiles(program);
  if (!has_tiles(map)) {
    result.launches = lower_finalizer(program, sizes, options);
    return result;
  }
  const SpaceKinds kinds = kinds_of(program, map, sizes);
  if (kinds.tiles.size() == map.spaces.size()) {
    result.launches = lower_tiles(program, sizes, options);
    return result;
  }

  if (kinds.plain.size() + kinds.tiles.size() != map.spaces.size()) {
    const GemmProgram products(given, sizes, options);
    result.has_products = true;
    result.takes_choice = products.takes_choice();
    for (size_t i = 0; i < products.kernels(); ++i)
      result.launches.push_back(products.emit(i, products.chosen(i).choice));
  }
  const Program renamed = with_kernel_names(program);
  for (int space : kinds.plain)
    result.launches.push_back(lower_plain(renamed, map.spaces[space], sizes, options));
  if (!kinds.tiles.empty())
    result.launches.push_back(lower_tile_spaces(renamed, kinds.tiles, sizes, options));
  return result;
}

std::string why_not_whole(const Program& given, const DimValues& sizes,
                          const LowerOptions& options) {
  try {
    const Program program = with_separate_products(given);
    const program::TileMap map = program::map_tiles(program);
    if (!has_tiles(map)) {
      lower_finalizer(program, sizes, options);
      return "";
    }
    const SpaceKinds kinds = kinds_of(program, map, sizes);
    gemm_kernels(ProgramSizes(program, sizes, options), map);
    if (!kinds.tiles.empty()) lower_tile_spaces(program, kinds.tiles, sizes, options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace coda::hopper
