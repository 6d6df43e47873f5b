// SPDX-License-Identifier: Apache-2.0
// Tile spaces with products together where they can be, those without by kernels of their own,
// programs over vectors by finalizer kernels. Spaces are independent, so their order is free.
#include "hopper/lower_whole.h"

#include <algorithm>

#include "coda/error.h"
#include "hopper/chosen_config.h"
#include "hopper/fewer_operations.h"
#include "hopper/finalizer_emitter.h"
#include "hopper/gemm_emitter.h"
#include "hopper/gemm_kernels.h"
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

  // What is refused is named as the caller named it, and configurations are chosen for what the
  // caller wrote; text has names that layers share, and no more operations than it needs.
  const ProgramSizes as_given(program, sizes, options);
  const std::vector<KernelSpaces> kernels = gemm_kernels(as_given, map);
  const Program renamed = with_kernel_names(program);
  const Program emitted = with_fewer_operations(renamed);
  const program::TileMap emitted_map = program::map_tiles(emitted);
  const ProgramSizes as_emitted(emitted, sizes, options);
  const std::vector<KernelSpaces> emitted_kernels = gemm_kernels(as_emitted, emitted_map);
  invariant(kernels.size() == emitted_kernels.size(), "kernels that fewer operations change");
  result.has_products = true;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const bool takes_choice = options.choice && is_legal(as_given, kernels[i], *options.choice);
    if (i == 0) result.takes_choice = takes_choice;
    result.launches.push_back(emit_gemm_kernel(as_emitted, emitted_map, emitted_kernels[i],
                                               choose_config(as_given, map, kernels[i]).choice));
  }
  if (!others.empty()) {
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
