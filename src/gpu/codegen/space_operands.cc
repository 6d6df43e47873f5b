// SPDX-License-Identifier: Apache-2.0
// Each copied box has a descriptor in the kernel's argument. A wide tensor with concatenated
// members is described as two tensors, so that no box crosses from one half into the other.
#include "gpu/codegen/space_operands.h"

#include <string>

#include "base/rounding.h"
#include "device/layout/tile_order.cuh"
#include "gpu/codegen/function_text.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

using device::Major;

// Rows of tiles that are processed together for L2 reuse (lab/notebook/hopper.md).
constexpr int64_t kBandRows = 2048;

// Returns `choose(k)` for the value k of `variable`, as a conditional expression.
template <class Choose>
std::string chosen(const std::string& variable, size_t count, const Choose& choose) {
  std::string text;
  for (size_t k = 0; k + 1 < count; ++k)
    text += filled("    if ($ == $) $\n", {variable, std::to_string(k), choose(k)});
  return text + "    " + choose(count - 1) + "\n";
}

}  // namespace

SpaceOperands::SpaceOperands(const ProgramSizes& sizes, const program::TileMap& map,
                             const SpaceAnalysis& analysis, const device::GemmConfig& config,
                             const std::string& name, LaunchArguments& arguments)
    : sizes_(sizes),
      map_(map),
      analysis_(analysis),
      config_(config),
      shape_(analysis.traits()),
      name_(name),
      arguments_(arguments) {}

int64_t SpaceOperands::half(int i) const {
  return map_.pairing[i] == Dim(0) ? 0 : sizes_.size(map_.pairing[i]) / 2;
}
bool SpaceOperands::is_concatenated(int i) const { return map_.pairing[i] == step(i).shape.cols; }
std::string SpaceOperands::own(const std::string& what) const {
  return what + "_" + name_.substr(std::string("Space").size());
}
int64_t SpaceOperands::base() const { return sizes_.size(tile_space().shape.cols); }

std::string SpaceOperands::shape_text(bool keeps_tables) const {
  std::string text =
      "  static constexpr EpilogueTraits kTraits{.parts = " + std::to_string(shape_.parts);
  const auto field = [&](const char* name, uint32_t value, uint32_t standard) {
    if (value != standard) text += std::string(", .") + name + " = " + std::to_string(value);
  };
  field("natural_half", shape_.natural_half, 0);
  field("segments", shape_.segments, 1);
  text += ", .loads = " + std::to_string(shape_.loads);
  field("byte_loads", shape_.byte_loads, 0);
  text += ", .stores = " + std::to_string(shape_.stores);
  field("wide_loads", shape_.wide_loads, 0);
  field("wide_stores", shape_.wide_stores, 0);
  field("bytes", shape_.bytes, 0);
  field("byte_rows", shape_.byte_rows, 0);
  field("byte_columns", shape_.byte_columns, 0);
  field("column_partials", shape_.column_partials, 0);
  if (keeps_tables) text += ", .keeps_tables = true";
  field("group_span", shape_.group_span, 0);
  field("group_walks", shape_.group_walks, 0);
  field("group_loads", shape_.group_loads, 0);
  return text + "};\n";
}

std::string SpaceOperands::extents() {
  const int64_t rows = sizes_.size(tile_space().shape.rows);
  const std::string rows_text = arguments_.number(own("rows"), rows);
  const std::string columns_text = arguments_.number(own("columns"), base());
  const device::TileOrder order = device::tile_order(
      config_, shape_, static_cast<uint32_t>(rows), static_cast<uint32_t>(base()),
      static_cast<uint32_t>(kBandRows / (config_.tile_m * config_.cluster_m)));
  const std::string band = arguments_.number(own("band"), order.band);
  const std::string tile_columns = arguments_.number(own("tile_columns"), order.columns);
  const std::string order_text =
      filled("{.rows = $, .columns = $, .band = $}",
             {arguments_.number(own("tile_rows"), order.rows), tile_columns, band});
  return function("u32", "rows(const Arguments& a)", "    return " + rows_text + ";\n") +
         function("u32", "columns(const Arguments& a)", "    return " + columns_text + ";\n") +
         function("TileOrder", "order(const Arguments& a)", "    return " + order_text + ";\n");
}

std::string SpaceOperands::operands() {
  const auto segments = static_cast<size_t>(analysis_.segments);
  const Step& first = step(analysis_.parts.front().gemm);
  const auto a_map = [&](size_t s) { return "return " + operand_a(first.segments()[s]) + ";"; };
  const auto blocks = [&](size_t s) {
    const GemmSegment& segment = first.segments()[s];
    const Shape& shape = tensor(segment.a).shape;
    const int64_t k = sizes_.size(segment.transpose_a ? shape.rows : shape.cols);
    return filled("return $;", {arguments_.number(own("k_blocks") + "_" + std::to_string(s),
                                                  ceil_div(k, config_.block_k()))});
  };
  const size_t loaded_parts = shape_.loaded_parts();
  const auto b_map = [&](size_t index) {
    return "return " + operand_b(index % loaded_parts, index / loaded_parts) + ";";
  };
  const std::string b_index = segments == 1 ? "part"
                              : loaded_parts == 1
                                  ? "segment"
                                  : "segment * " + std::to_string(shape_.parts) + " + part";
  const std::string a_text = chosen("segment", segments, a_map);
  const std::string b_text = chosen(b_index, segments * loaded_parts, b_map);
  const std::string k_text = chosen("segment", segments, blocks);
  const std::string type(sizes_.target().operand_type);
  return function(type, "a(const Arguments& a, u32 segment)", a_text) +
         function(type, "b(const Arguments& a, u32 segment, u32 part)", b_text) +
         function("u32", "k_blocks(const Arguments& a, u32 segment)", k_text) +
         (analysis_.has_scales ? scales() : "");
}

// K blocks are numbered through all segments.
std::string SpaceOperands::scales() {
  const auto of_segments = [&](int gemm, const auto& scale) {
    const std::vector<GemmSegment>& segments = step(gemm).segments();
    std::string text;
    for (size_t s = 0; s < segments.size(); ++s) {
      const int64_t k = sizes_.size(tensor(segments[s].a).shape.cols);
      const int64_t stages = ceil_div(k, config_.block_k());
      const std::string number = "_" + std::to_string(s);
      const std::string value = scale(segments[s]);
      const std::string count = arguments_.number(own("k_blocks") + number, stages);
      text += s + 1 == segments.size()
                  ? filled("return $; ", {value})
                  : filled("if (k < $) return $; k -= $; ", {count, value, count});
    }
    return "{ " + text + "}";
  };
  // The scale of a stored row of the operand.
  const auto scale_at = [&](int operand, int scales, const std::string& row) -> std::string {
    if (scales < 0) return "1.0f";
    const bool is_of_rows = tensor(scales).shape.rows == tensor(operand).shape.rows;
    return filled("load_element<Element::f32>($, static_cast<u64>($) * $ + $)",
                  {arguments_.pointer(scales),
                   is_of_rows ? row : "((" + row + ") / " + std::to_string(kScaleSpan) + ")",
                   arguments_.stride(scales), "k"});
  };
  const std::string rows = of_segments(analysis_.parts.front().gemm, [&](const GemmSegment& s) {
    return scale_at(s.a, s.scales_a, "row");
  });
  const auto of_part = [&](size_t part) {
    const Part& p = analysis_.parts[part];
    return of_segments(p.gemm, [&](const GemmSegment& s) {
      const bool is_second = p.member == 1 && analysis_.natural_half == 0;
      const int64_t half = sizes_.size(tensor(s.b).shape.rows) / 2;
      return scale_at(s.b, s.scales_b,
                      is_second ? arguments_.number(own("half"), half) + " + column" : "column");
    });
  };
  return function("float", "scale_of_row(const Arguments& a, u32 k, u32 row)",
                  "    " + rows + "\n") +
         function("float", "scale_of_column(const Arguments& a, u32 k, u32 part, u32 column)",
                  chosen("part", shape_.loaded_parts(), of_part));
}

std::string SpaceOperands::operand_a(const GemmSegment& segment) {
  return operand(whole(segment.a), config_.major_a(), device::box_a(config_), "");
}

std::string SpaceOperands::operand_b(size_t part, size_t segment) {
  const Part& p = analysis_.parts[part];
  const GemmSegment& s = step(p.gemm).segments()[segment];
  TensorMapSpec spec = whole(s.b);
  std::string role;
  if (p.member >= 0 && analysis_.natural_half == 0) {
    int64_t& outer = s.transpose_b ? spec.rows : spec.columns;
    outer /= 2;
    (s.transpose_b ? spec.row_offset : spec.column_offset) = p.member * outer;
    role = p.member == 0 ? "_first" : "_second";
  }
  return operand(spec, config_.major_b(), device::box_b(config_, shape_), role);
}

std::string SpaceOperands::operand(TensorMapSpec spec, Major major, const device::OperandBox& box,
                                   const std::string& role) {
  const bool k_inner = major == Major::k;
  spec.box_rows = k_inner ? box.outer : box.k;
  spec.box_columns = k_inner ? box.k : box.outer;
  return described(spec, role);
}

// An expression for the tensor, or a part of it with this role, in the target's way.
std::string SpaceOperands::described(const TensorMapSpec& spec, const std::string& role) {
  const int t = spec.tensor;
  const std::string name = sizes_.tensor(t).name + role;
  const auto number = [&](const char* what, int64_t value) {
    return [this, what, name, value] { return arguments_.number(what + name, value); };
  };
  return sizes_.target().operand({.descriptor = [&] { return arguments_.map(spec, role); },
                                  .address = [&] { return arguments_.pointer(t); },
                                  .stride = [&] { return arguments_.stride(t); },
                                  .rows = number("rows_of_", spec.rows),
                                  .columns = number("columns_of_", spec.columns),
                                  .first_row = number("first_row_of_", spec.row_offset),
                                  .first_column = number("first_column_of_", spec.column_offset)});
}

TensorMapSpec SpaceOperands::whole(int t) const {
  return {.tensor = t, .rows = sizes_.stored_rows(t), .columns = sizes_.stored_columns(t)};
}

std::pair<std::string, std::string> SpaceOperands::plane_box(const TileMove& move, int plane) {
  const Step& s = step(move.step);
  TensorMapSpec spec = whole(s.tensor());
  if (program::is_tile_store(s) && !move.is_wide)
    spec.columns = sizes_.writable_columns(s.tensor());
  spec.box_rows = device::kWgmmaM;
  spec.box_columns = device::sub_tile_width(config_, shape_);
  std::string role = "_tile";
  std::string column = "column";
  if (move.is_wide && is_concatenated(move.step) && !move.is_permuted) {
    spec.columns /= 2;
    spec.column_offset = plane * spec.columns;
    role = plane == 0 ? "_first" : "_second";
  } else if (move.is_wide) {
    column = filled("plane_column($, $, column)",
                    {std::to_string(half(move.step)), std::to_string(plane)});
  }
  return {described(spec, role), column};
}

// A row-wise box starts at the sub-tile's first (column, row), a column-wise box at its first (row,
// column).
std::pair<std::string, std::string> SpaceOperands::byte_box(int move, int value, bool is_wide,
                                                            int plane) {
  const Step& s = step(move);
  const bool is_transposed = program::is_transposed_store(s);
  TensorMapSpec spec = whole(s.tensor());
  spec.box_rows = spec.box_columns = device::kSubTileColumns;
  std::string role = "_bytes";
  std::string column = "column";
  if (is_wide && is_concatenated(value)) {
    int64_t& own = is_transposed ? spec.rows : spec.columns;
    own /= 2;
    (is_transposed ? spec.row_offset : spec.column_offset) = plane * own;
    role += plane == 0 ? "_first" : "_second";
  } else if (is_wide) {
    column =
        filled("plane_column($, $, column)", {std::to_string(half(value)), std::to_string(plane)});
  }
  return {described(spec, role), column};
}

std::string SpaceOperands::byte_planes() {
  Body lines(4);
  for (const ByteMove& move : analysis_.bytes) {
    for (int plane = 0; plane < (move.is_wide ? 2 : 1); ++plane) {
      for (const int effect : {move.rows, move.columns}) {
        if (effect < 0) continue;
        const auto [map, column] = byte_box(effect, move.from, move.is_wide, plane);
        const bool along_columns = program::is_transposed_store(step(effect));
        const uint32_t half =
            shape_.byte_half(static_cast<uint32_t>(move.plane + plane), along_columns);
        const PlaneMoves& planes = sizes_.target().planes;
        lines.line(along_columns ? planes.store_bytes_turned : planes.store_bytes,
                   {std::to_string(half), map, column});
      }
    }
  }
  return lines.empty() ? ""
                       : function("void",
                                  "store_bytes(const Arguments& a, u32 half, u32 row, u32 column,\n"
                                  "                                     SharedAddress source)",
                                  lines.text());
}

std::string SpaceOperands::planes() {
  const auto moved = [&](const std::vector<TileMove>& moves, std::string_view pattern,
                         const char* signature) {
    Body lines(4);
    for (const TileMove& move : moves) {
      for (int plane = 0; plane < (move.is_wide ? 2 : 1); ++plane) {
        if (move.plane < 0) continue;
        const auto [map, column] = move.movement == Movement::bytes
                                       ? byte_box(move.step, move.step, move.is_wide, plane)
                                       : plane_box(move, plane);
        lines.line(pattern, {std::to_string(move.plane + plane), map, column});
      }
    }
    return lines.empty() ? "" : function("void", signature, lines.text());
  };
  const std::string loads =
      moved(analysis_.loads, sizes_.target().planes.load,
            "load(const Arguments& a, u32 plane, SharedAddress destination, u32 row, u32 column,\n"
            "                              SharedAddress barrier)");
  return loads +
         moved(analysis_.stores, sizes_.target().planes.store,
               "store(const Arguments& a, u32 plane, u32 row, u32 column, SharedAddress source)") +
         byte_planes();
}

}  // namespace coda::gpu
