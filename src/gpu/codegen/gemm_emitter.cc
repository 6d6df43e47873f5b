// SPDX-License-Identifier: Apache-2.0
// Assembles the kernel from the structs of its tile spaces (space_text.h) and the target's frame.
#include "gpu/codegen/gemm_emitter.h"

#include "coda/error.h"
#include "gpu/codegen/expressions.h"
#include "gpu/codegen/function_text.h"
#include "gpu/codegen/kernel_text.h"
#include "gpu/codegen/space_text.h"

namespace coda::gpu {
namespace {

// The most rows that a kernel supports. The highest bit of a row count must be zero, because pairs
// use that bit to wait for other pairs (device/epilogue/fragment_values.cuh).
constexpr int64_t kMostRows = 0x7fffffff;

}  // namespace

KernelLaunch emit_gemm_kernel(const ProgramSizes& sizes, const program::TileMap& map,
                              const KernelSpaces& kernel, const GemmConfig& choice,
                              bool keeps_tables) {
  const device::GemmConfig config = kernel.spaces.front().with_products(choice);

  LaunchArguments arguments(sizes);
  std::string structs;
  std::string names;
  device::RingShape ring;
  bool has_column_partials = false;
  bool has_direct_loads = false;
  for (size_t i = 0; i < kernel.spaces.size(); ++i) {
    const SpaceAnalysis& space = kernel.spaces[i];
    const int64_t rows = sizes.size(map.spaces[space.space].shape.rows);
    require(rows <= kMostRows, sizes.description() + ": a product has " + std::to_string(rows) +
                                   " rows, but a kernel supports at most " +
                                   std::to_string(kMostRows) +
                                   "; run it over fewer rows at a time");
    const std::string name = "Space" + std::to_string(i);
    structs += space_text(sizes, map, space, config, keeps_tables, name, arguments) + "\n";
    names += ", " + name;
    ring = device::merged(ring, device::ring_shape(config, space.traits()));
    has_column_partials = has_column_partials || !space.column_partials.empty();
    has_direct_loads = has_direct_loads || space.direct_registers != 0;
  }

  std::vector<std::string> headers = {"arguments.cuh", "epilogue/fragment_values.cuh"};
  if (has_column_partials) headers.emplace_back("epilogue/column_partial.cuh");
  if (has_direct_loads) headers.emplace_back("epilogue/direct_pairs.cuh");
  const Target& target = sizes.target();
  const KernelFrame frame = target.frame(config);
  headers.insert(headers.end(), frame.headers.begin(), frame.headers.end());
  const std::string body = target.deals_tiles
                               ? filled(frame.body, {names, arguments.tile_counter()})
                               : filled(frame.body, {names});
  KernelLaunch launch =
      launch_of({.function = identifier(sizes.program().name) + "_kernel",
                 .headers = headers,
                 .before = "\n" + frame.config + "\n",
                 .behind = "\n" + structs,
                 .attributes = frame.attributes,
                 .body = body},
                sizes, arguments, grid_of(sizes, map, kernel, config), target.threads);
  launch.cluster = config.cluster_size();
  launch.shared_bytes = target.shared_use(config, ring).bytes;
  return launch;
}

}  // namespace coda::gpu
