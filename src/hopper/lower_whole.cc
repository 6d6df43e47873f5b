// SPDX-License-Identifier: Apache-2.0
// Tile spaces with products together where they can be, those without by kernels of their own,
// programs over vectors by finalizer kernels. Spaces are independent, so their order is free.
#include "hopper/lower_whole.h"

#include <algorithm>

#include "coda/error.h"
#include "hopper/finalizer_emitter.h"
#include "hopper/gemm_kernels.h"
#include "hopper/gemm_program.h"
#include "hopper/kernel_names.h"
#include "hopper/separate_spaces.h"
#include "hopper/tile_emitter.h"

namespace coda::hopper {
namespace {

bool has_tiles(const program::TileMap& map) {
  return std::find(map.on_tile.begin(), map.on_tile.end(), 1) != map.on_tile.end();
}

std::vector<int> spaces_without_products(const Program& program, const program::TileMap& map) {
  std::vector<int> spaces;
  for (size_t i = 0; i < map.spaces.size(); ++i) {
    if (!has_gemm(program, map.spaces[i])) spaces.push_back(static_cast<int>(i));
  }
  return spaces;
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
  const std::vector<int> others = spaces_without_products(program, map);
  if (others.size() == map.spaces.size()) {
    result.launches = lower_tiles(program, sizes, options);
    return result;
  }

  const GemmProgram products(given, sizes, options);
  result.has_products = true;
  result.takes_choice = products.takes_choice();
  for (size_t i = 0; i < products.kernels(); ++i)
    result.launches.push_back(products.emit(i, products.chosen(i).choice));
  if (!others.empty()) {
    const Program renamed = with_kernel_names(program);
    result.launches.push_back(lower_tile_spaces(renamed, others, sizes, options));
  }
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
    const std::vector<int> others = spaces_without_products(program, map);
    gemm_kernels(ProgramSizes(program, sizes, options), map);
    if (!others.empty()) lower_tile_spaces(program, others, sizes, options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace coda::hopper
