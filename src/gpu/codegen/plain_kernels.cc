// SPDX-License-Identifier: Apache-2.0
// A GEMM uses one block for each 64 x 64 tile of the result; a group sum uses one warp for each
// group.
#include "gpu/codegen/plain_kernels.h"

#include <algorithm>

#include "base/rounding.h"
#include "device/kernels/plain_shape.cuh"
#include "gpu/codegen/expressions.h"
#include "gpu/codegen/function_text.h"
#include "gpu/codegen/kernel_text.h"
#include "gpu/legalise/plain_spaces.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

constexpr uint32_t kWarp = 32;

const char* boolean(bool value) { return value ? "true" : "false"; }

int64_t tiles(int64_t extent) { return ceil_div(extent, device::kPlainTile); }

class PlainWriter {
 public:
  PlainWriter(const ProgramSizes& sizes, const TileSpace& space)
      : sizes_(sizes), space_(space), arguments_(sizes) {}

  KernelLaunch product() {
    const Step& gemm = source(program::is_product);
    const int64_t rows = sizes_.size(gemm.shape.rows);
    const int64_t columns = sizes_.size(gemm.shape.cols);
    body_.line("__shared__ PlainTiles tiles;");
    body_.line("float sums[kPlainOwn][kPlainOwn] = {};");
    body_.line("const PlainPosition at = plain_position(block_index(), $, $);",
               {arguments_.number("rows", rows), arguments_.number("columns", columns)});
    for (size_t i = 0; i < gemm.segments().size(); ++i) {
      const GemmSegment& s = gemm.segments()[i];
      const Shape& a = sizes_.tensor(s.a).shape;
      const std::string depth = arguments_.number("depth_" + std::to_string(i),
                                                  sizes_.size(s.transpose_a ? a.rows : a.cols));
      body_.line(
          "add_plain_product<$, $, $, $>(sums, tiles, $, $, $, at$);",
          {arguments_.stored_type(s.a), boolean(s.transpose_a), arguments_.stored_type(s.b),
           boolean(s.transpose_b), place(s.a), place(s.b), depth,
           s.is_scaled() ? ", " + scales(s.a, s.scales_a) + ", " + scales(s.b, s.scales_b) : ""});
    }
    for (int i : space_.steps) {
      if (const Step& s = sizes_.step(i); program::is_tile_store(s))
        body_.line("store_plain<$>($, sums, at);",
                   {arguments_.stored_type(s.tensor()), place(s.tensor())});
    }
    return assemble("_product", "kernels/plain_product.cuh", tiles(rows) * tiles(columns),
                    device::kPlainThreads);
  }

  KernelLaunch group_sums() {
    const Step& load = source(program::is_tile_load);
    const Step& sum = source(program::sums_groups);
    const int64_t rows = sizes_.size(sum.shape.rows);
    const int64_t groups = sizes_.size(sum.shape.cols);
    const std::string extents =
        filled("$, $, $", {arguments_.number("rows", rows), arguments_.number("groups", groups),
                           arguments_.number("group", sizes_.size(sum.group()))});
    for (int i : space_.steps) {
      const Step& s = sizes_.step(i);
      if (!program::is_tile_store(s)) continue;
      body_.line("fold_groups<Reduction::$, $, $>($, $, $, $, block_index(), $);",
                 {program::takes_largest_of_groups(sum) ? "abs_max" : "sum",
                  arguments_.stored_type(load.tensor()), arguments_.stored_type(s.tensor()),
                  arguments_.pointer(load.tensor()), start_of_row(load),
                  arguments_.stored_columns(load.tensor()), place(s.tensor()), extents});
    }
    return assemble("_groups", "kernels/plain_groups.cuh",
                    ceil_div(rows * groups, device::kGroupWarps), device::kGroupWarps * kWarp);
  }

 private:
  const Step& source(bool (*is_one)(const Step&)) const {
    return sizes_.step(*std::find_if(space_.steps.begin(), space_.steps.end(),
                                     [&](int i) { return is_one(sizes_.step(i)); }));
  }
  // A function from a row of the tile to the first element of the tensor's row.
  std::string start_of_row(const Step& load) {
    const int index = load.row_index();
    std::string row = "row";
    if (index >= 0)
      row = filled("table_row(load_index($, $), $)",
                   {arguments_.pointer(index), arguments_.row_start("row", index),
                    arguments_.stored_rows(load.tensor())});
    return filled("[&](u32 row) { return $; }", {arguments_.row_start(row, load.tensor())});
  }
  std::string scales(int operand, int scales) {
    if (scales < 0) return "PlainScales{}";
    const bool is_of_rows = sizes_.tensor(scales).shape.rows == sizes_.tensor(operand).shape.rows;
    return filled(
        "PlainScales{$, $, $}",
        {place(scales), std::to_string(is_of_rows ? 1 : kScaleSpan), std::to_string(kScaleSpan)});
  }
  std::string place(int tensor) {
    return arguments_.pointer(tensor) + ", " + arguments_.stride(tensor);
  }
  KernelLaunch assemble(const std::string& function, const std::string& header, int64_t blocks,
                        uint32_t threads) const {
    return launch_of(KernelParts::plain(identifier(sizes_.program().name + function),
                                        {"arguments.cuh", "ptx/dependent_launch.cuh", header}, "",
                                        filled("__launch_bounds__($)", {std::to_string(threads)}),
                                        "", body_.text()),
                     sizes_, arguments_, blocks, threads);
  }

  const ProgramSizes& sizes_;
  const TileSpace& space_;
  LaunchArguments arguments_;
  Body body_{2};
};

}  // namespace

KernelLaunch lower_plain(const ProgramSizes& sizes, const TileSpace& space) {
  PlainWriter writer(sizes, space);
  return has_gemm(sizes.program(), space) ? writer.product() : writer.group_sums();
}

}  // namespace coda::gpu
