// SPDX-License-Identifier: Apache-2.0
// The spaces share a launch: each takes as many blocks as its tiles need, one space after another.
#include "hopper/codegen/tile_emitter.h"

#include <numeric>

#include "coda/error.h"
#include "device/tiles/tile_position.cuh"
#include "hopper/codegen/argument_text.h"
#include "hopper/codegen/expressions.h"
#include "hopper/codegen/kernel_names.h"
#include "hopper/codegen/tile_space_text.h"

namespace coda::hopper {

KernelLaunch lower_tile_spaces(const Program& program, const std::vector<int>& spaces,
                               const DimValues& sizes, const LowerOptions& options) {
  const program::TileMap map = program::map_tiles(program);
  ArgumentText arguments(program, sizes, options);
  std::string structs;
  std::string dispatch;
  int64_t blocks = 0;
  bool reduces_columns = false;
  for (size_t i = 0; i < spaces.size(); ++i) {
    const TileSpaceText space = tile_space_text(program, map, spaces[i], sizes, arguments);
    structs += space.text + "\n";
    reduces_columns = reduces_columns || space.reduces_columns;
    const std::string id = std::to_string(spaces[i]);
    const std::string first = i == 0 ? "" : " - " + arguments.number("first_block_" + id, blocks);
    blocks += space.blocks;
    const std::string run =
        "run_space<" + space.name + ">(a, block_index()" + first + ", scratch);\n";
    if (i + 1 == spaces.size()) {
      dispatch += "  " + run;
    } else {
      dispatch += "  if (block_index() < " +
                  arguments.number("first_block_" + std::to_string(spaces[i + 1]), blocks) +
                  ") return " + run;
    }
  }
  require(blocks < int64_t{1} << 31, "program '" + program.name + "' has too many tiles for one " +
                                         "launch; run it on fewer rows at a time");
  KernelLaunch launch;
  launch.function = identifier(program.name + "_tiles");
  launch.source = program_comment(program) + "#include \"device/kernels/tile_kernel.cuh\"\n\n" +
                  "namespace coda::device {\nnamespace {\n\n" + arguments.declarations() + "\n" +
                  structs + "}  // namespace\n\nextern \"C\" __global__ void " +
                  "__launch_bounds__(kTileThreads, 1) " + launch.function +
                  "(const __grid_constant__ Arguments a) {\n" +
                  (reduces_columns ? "  __shared__ float scratch[kColumnScratch];\n"
                                   : "  float* const scratch = nullptr;\n") +
                  "  launch_dependents();\n  wait_for_predecessor();\n" + dispatch +
                  "}\n\n}  // namespace coda::device\n";
  launch.grid = static_cast<uint32_t>(blocks);
  launch.threads = device::kTileThreads;
  launch.waits_for_predecessor = true;
  arguments.fill(launch);
  return launch;
}

std::vector<KernelLaunch> lower_tiles(const Program& program, const DimValues& sizes,
                                      const LowerOptions& options) {
  std::vector<int> spaces(program::map_tiles(program).spaces.size());
  std::iota(spaces.begin(), spaces.end(), 0);
  try {
    return {lower_tile_spaces(with_kernel_names(program), spaces, sizes, options)};
  } catch (const Error&) {
    lower_tile_spaces(program, spaces, sizes, options);  // says it with the caller's names
    throw;
  }
}

}  // namespace coda::hopper
