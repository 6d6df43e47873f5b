// SPDX-License-Identifier: Apache-2.0
#include "hopper/codegen/gemm_emitter.h"

#include "coda/error.h"
#include "hopper/arch/element.h"
#include "hopper/codegen/expressions.h"
#include "hopper/codegen/space_text.h"

namespace coda::hopper {
namespace {

// Their highest bit is zero, which makes values wait for others
// (device/epilogue/fragment_values.cuh).
constexpr int64_t kMostRows = 0x7fffffff;

using device::OperandLayout;
using device::Schedule;

std::string comment(const std::string& text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    result += "// " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return result;
}

std::string config_text(const device::GemmConfig& c) {
  static constexpr const char* kLayouts[] = {"tn", "nn", "nt", "tt"};
  const auto field = [](const char* name, uint32_t value) {
    return std::string(".") + name + " = " + std::to_string(value) + ", ";
  };
  return "constexpr GemmConfig kConfig{" + field("tile_m", c.tile_m) + field("tile_n", c.tile_n) +
         field("cluster_m", c.cluster_m) + field("cluster_n", c.cluster_n) +
         field("stages", c.stages) + "\n                             .schedule = Schedule::" +
         (c.schedule == Schedule::ping_pong ? "ping_pong" : "cooperative") +
         ", .layout = OperandLayout::" + kLayouts[static_cast<int>(c.layout)] +
         ", .element = " + element_text(element_row(c.element).type) + "};\n";
}

}  // namespace

KernelLaunch emit_gemm_kernel(const ProgramSizes& sizes, const program::TileMap& map,
                              const KernelSpaces& kernel, const GemmConfig& choice,
                              bool keeps_tables) {
  device::GemmConfig config = choice;
  config.layout = kernel.spaces.front().layout;
  config.element = kernel.spaces.front().element;

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
                                   " rows, and a kernel counts to " + std::to_string(kMostRows) +
                                   "; run it over fewer rows at a time");
    const std::string name = "Space" + std::to_string(i);
    structs += space_text(sizes, map, space, config, keeps_tables, name, arguments) + "\n";
    names += ", " + name;
    ring = device::merged(ring, device::ring_shape(config, space.traits()));
    has_column_partials = has_column_partials || !space.column_partials.empty();
    has_direct_loads = has_direct_loads || space.direct_registers != 0;
  }

  KernelLaunch launch;
  launch.function = identifier(sizes.program().name) + "_kernel";
  launch.source =
      comment(coda::text(sizes.program())) +
      "#include \"device/arguments.cuh\"\n#include \"device/epilogue/fragment_values.cuh\"\n" +
      (has_column_partials ? "#include \"device/epilogue/column_partial.cuh\"\n" : "") +
      (has_direct_loads ? "#include \"device/epilogue/direct_pairs.cuh\"\n" : "") +
      "#include \"device/kernels/program_kernel.cuh\"\n\nnamespace coda::device {\n\n" +
      config_text(config) + "\n" + arguments.text() + "\n" + structs +
      "extern \"C\" __global__ void __launch_bounds__(kThreads, 1)\n"
      "__cluster_dims__(kConfig.cluster_size(), 1, 1)\n" +
      launch.function + "(const __grid_constant__ Arguments a) {\n" + "  program_kernel<kConfig" +
      names + ">(a);\n}\n\n}  // namespace coda::device\n";
  arguments.fill(launch);
  launch.grid = grid_of(sizes, map, kernel, config);
  launch.cluster = config.cluster_size();
  launch.threads = device::kThreads;
  launch.waits_for_predecessor = true;
  launch.shared_bytes = device::shared_layout(config, ring).bytes;
  return launch;
}

}  // namespace coda::hopper
