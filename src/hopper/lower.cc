// SPDX-License-Identifier: Apache-2.0
// A program as launches: tile spaces with products together where they can be, those without by
// kernels of their own, programs over vectors by finalizer kernels. Spaces are independent, so
// their order is free.
#include <algorithm>

#include "coda/error.h"
#include "hopper/chosen_config.h"
#include "hopper/finalizer_emitter.h"
#include "hopper/gemm_emitter.h"
#include "hopper/gemm_kernels.h"
#include "hopper/kernel_launch.h"
#include "hopper/kernel_names.h"
#include "hopper/separate_spaces.h"
#include "hopper/tile_emitter.h"

namespace coda::hopper {
namespace {

void check_options(const Program& program, const LowerOptions& options) {
  invariant(options.row_strides.empty() || options.row_strides.size() == program.tensors.size(),
            "a row stride for each tensor");
}

}  // namespace

std::vector<KernelLaunch> lower(const Program& given, const DimValues& sizes,
                                const LowerOptions& options) {
  check_options(given, options);
  const Program program = with_separate_products(given);
  const program::TileMap map = program::map_tiles(program);
  const bool has_tiles = std::find(map.on_tile.begin(), map.on_tile.end(), 1) != map.on_tile.end();
  if (!has_tiles) return lower_finalizer(program, sizes, options);
  std::vector<int> others;
  for (size_t i = 0; i < map.spaces.size(); ++i) {
    if (!has_gemm(program, map.spaces[i])) others.push_back(static_cast<int>(i));
  }
  if (others.size() == map.spaces.size()) return lower_tiles(program, sizes, options);

  // What is refused is named as the caller named it; text has names that layers share.
  const ProgramSizes as_given(program, sizes, options);
  const std::vector<KernelSpaces> kernels = gemm_kernels(as_given, map);
  const Program renamed = with_kernel_names(program);
  const ProgramSizes as_emitted(renamed, sizes, options);
  std::vector<KernelLaunch> launches;
  for (const KernelSpaces& kernel : kernels) {
    const bool takes_choice = options.choice && is_legal(as_given, kernel, *options.choice);
    require(takes_choice || !options.choice || &kernel != &kernels.front(),
            as_given.description() + ": its products cannot be made with " +
                (options.choice ? text(*options.choice) : "") + "; choose one of legal_choices()");
    launches.push_back(
        emit_gemm_kernel(as_emitted, map, kernel, choose_config(as_given, map, kernel).choice));
  }
  if (!others.empty()) launches.push_back(lower_tile_spaces(renamed, others, sizes, options));
  return launches;
}

}  // namespace coda::hopper
