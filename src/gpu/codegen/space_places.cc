// SPDX-License-Identifier: Apache-2.0
// Member w of base column j of a wide tensor is column (j / half) * 2 * half + w * half + j % half
// in memory (device/layout/space.cuh). A tensor that repeats along columns is indexed modulo its
// own width.
#include "gpu/codegen/space_places.h"

#include "gpu/codegen/function_text.h"

namespace coda::gpu {
std::string SpacePlaces::natural(int i, int plane, const std::string& column) {
  const int64_t h = operands_.half(i);
  if (h == 0 || (operands_.is_concatenated(i) && plane == 0)) return column;
  if (operands_.is_concatenated(i)) return column + " + " + base();
  return filled("wide_column($, $, $)", {std::to_string(h), std::to_string(plane), column});
}

std::string SpacePlaces::plane_column(int i) {
  const int64_t h = operands_.half(i);
  if (h == 0) return "PlaneColumn{0, column}";
  if (operands_.is_concatenated(i))
    return filled("PlaneColumn{column / $, column % $}", {base(), base()});
  const std::string half = std::to_string(h);
  return filled("PlaneColumn{column / $ % 2, column / $ * $ + column % $}",
                {half, std::to_string(2 * h), half, half});
}

std::string SpacePlaces::base() {
  return arguments_.number(operands_.own("columns"), operands_.base());
}

std::string SpacePlaces::element(int i, int plane, const std::string& row,
                                 const std::string& column) {
  std::string at = natural(i, plane, column);
  if (!sizes_.step(i).repeat().is(1)) at = "(" + at + ") % " + std::to_string(columns_of(i));
  return filled("static_cast<u64>($) * $ + $",
                {row, arguments_.stride(sizes_.step(i).tensor()), at});
}

std::string SpacePlaces::pair(int i, int plane, const std::string& row) {
  std::string text = element(i, plane, row, "column");
  if (!are_neighbours(i)) text += ", " + element(i, plane, row, "(column + 1)");
  return text;
}

const char* SpacePlaces::pair_or_two(int i) const { return are_neighbours(i) ? "pair" : "two"; }

bool SpacePlaces::is_contiguous(int i) const {
  const int64_t h = operands_.half(i);
  const bool in_plane = h == 0 || operands_.is_concatenated(i) || h % kPartialSpan == 0;
  return in_plane && (sizes_.step(i).repeat().is(1) || columns_of(i) % kPartialSpan == 0);
}

int64_t SpacePlaces::columns_of(int i) const {
  return sizes_.size(sizes_.tensor(sizes_.step(i).tensor()).shape.cols);
}

// Two base columns starting at an even one.
bool SpacePlaces::are_neighbours(int i) const {
  const int64_t h = operands_.half(i);
  return (h == 0 || operands_.is_concatenated(i) || h % 2 == 0) &&
         (sizes_.step(i).repeat().is(1) || columns_of(i) % 2 == 0);
}

}  // namespace coda::gpu
