// SPDX-License-Identifier: Apache-2.0
#include "hopper/codegen/plain_kernels.h"

#include <algorithm>

#include "base/rounding.h"
#include "coda/error.h"
#include "device/kernels/plain_shape.cuh"
#include "hopper/codegen/argument_text.h"
#include "hopper/codegen/expressions.h"
#include "hopper/legalise/plain_spaces.h"
#include "program/step_table.h"

namespace coda::hopper {
namespace {

constexpr uint32_t kWarp = 32;

KernelLaunch assemble(const Program& program, const std::string& function,
                      const std::string& header, const std::string& body, int64_t blocks,
                      uint32_t threads, const ArgumentText& arguments) {
  require(blocks < int64_t{1} << 31, "program '" + program.name + "' has too many tiles for one " +
                                         "launch; run it on fewer rows at a time");
  KernelLaunch launch;
  launch.function = identifier(program.name + function);
  launch.source =
      program_comment(program) +
      "#include \"device/arguments.cuh\"\n#include \"device/ptx/dependent_launch.cuh\"\n" +
      "#include \"device/kernels/" + header + "\"\n\nnamespace coda::device {\nnamespace {\n\n" +
      arguments.declarations() + "\n}  // namespace\n\nextern \"C\" __global__ void " +
      "__launch_bounds__(" + std::to_string(threads) + ") " + launch.function +
      "(const __grid_constant__ Arguments a) {\n" +
      "  launch_dependents();\n  wait_for_predecessor();\n" + body +
      "}\n\n}  // namespace coda::device\n";
  launch.grid = static_cast<uint32_t>(blocks);
  launch.threads = threads;
  launch.waits_for_predecessor = true;
  arguments.fill(launch);
  return launch;
}

std::string boolean(bool value) { return value ? "true" : "false"; }

int64_t tiles(int64_t extent) { return ceil_div(extent, device::kPlainTile); }

class PlainWriter {
 public:
  PlainWriter(const Program& program, const TileSpace& space, const DimValues& sizes,
              const LowerOptions& options)
      : program_(program), space_(space), arguments_(program, sizes, options) {}

  KernelLaunch product() {
    const Step& gemm = source(program::is_product);
    const int64_t rows = arguments_.size(gemm.shape.rows);
    const int64_t columns = arguments_.size(gemm.shape.cols);
    std::string body =
        "  __shared__ PlainTiles tiles;\n  float sums[kPlainOwn][kPlainOwn] = {};\n"
        "  const PlainPosition at = plain_position(block_index(), " +
        arguments_.number("rows", rows) + ", " + arguments_.number("columns", columns) + ");\n";
    for (size_t i = 0; i < gemm.segments().size(); ++i) {
      const GemmSegment& s = gemm.segments()[i];
      const Shape& a = arguments_.tensor(s.a).shape;
      const std::string depth = arguments_.number("depth_" + std::to_string(i),
                                                  arguments_.size(s.transpose_a ? a.rows : a.cols));
      body += "  add_plain_product<" + arguments_.stored_type(s.a) + ", " + boolean(s.transpose_a) +
              ", " + arguments_.stored_type(s.b) + ", " + boolean(s.transpose_b) +
              ">(sums, tiles, " + place(s.a) + ", " + place(s.b) + ", " + depth + ", at);\n";
    }
    for (int i : space_.steps) {
      const Step& s = program_.steps[i];
      if (!program::is_tile_store(s)) continue;
      body += "  store_plain<" + arguments_.stored_type(s.tensor()) + ">(" + place(s.tensor()) +
              ", sums, at);\n";
    }
    return assemble(program_, "_product", "plain_product.cuh", body, tiles(rows) * tiles(columns),
                    device::kPlainThreads, arguments_);
  }

  KernelLaunch group_sums() {
    const Step& load = source(program::is_tile_load);
    const Step& sum = source(program::sums_groups);
    const int64_t rows = arguments_.size(sum.shape.rows);
    const int64_t groups = arguments_.size(sum.shape.cols);
    const std::string extents = ", block_index(), " + arguments_.number("rows", rows) + ", " +
                                arguments_.number("groups", groups) + ", " +
                                arguments_.number("group", arguments_.size(sum.group())) + ");\n";
    std::string body;
    for (int i : space_.steps) {
      const Step& s = program_.steps[i];
      if (!program::is_tile_store(s)) continue;
      body += "  sum_groups<" + arguments_.stored_type(load.tensor()) + ", " +
              arguments_.stored_type(s.tensor()) + ">(" + arguments_.pointer(load.tensor()) + ", " +
              start_of_row(load) + ", " + arguments_.stored_columns(load.tensor()) + ", " +
              place(s.tensor()) + extents;
    }
    const int64_t blocks = ceil_div(rows * groups, device::kGroupWarps);
    return assemble(program_, "_groups", "plain_groups.cuh", body, blocks,
                    device::kGroupWarps * kWarp, arguments_);
  }

 private:
  const Step& source(bool (*is_one)(const Step&)) const {
    return program_.steps[*std::find_if(space_.steps.begin(), space_.steps.end(),
                                        [&](int i) { return is_one(program_.steps[i]); })];
  }
  // A function from a row of the tile to the element at which the tensor's row starts.
  std::string start_of_row(const Step& load) {
    std::string row = "row";
    if (load.row_index() >= 0)
      row = "table_row(load_index(" + arguments_.pointer(load.row_index()) + ", " +
            arguments_.row_start("row", load.row_index()) + "), " +
            arguments_.stored_rows(load.tensor()) + ")";
    return "[&](u32 row) { return " + arguments_.row_start(row, load.tensor()) + "; }";
  }
  std::string place(int tensor) {
    return arguments_.pointer(tensor) + ", " + arguments_.stride(tensor);
  }

  const Program& program_;
  const TileSpace& space_;
  ArgumentText arguments_;
};

}  // namespace

KernelLaunch lower_plain(const Program& program, const TileSpace& space, const DimValues& sizes,
                         const LowerOptions& options) {
  PlainWriter writer(program, space, sizes, options);
  return has_gemm(program, space) ? writer.product() : writer.group_sums();
}

}  // namespace coda::hopper
