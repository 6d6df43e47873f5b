// SPDX-License-Identifier: Apache-2.0
// A Program: how tiles are computed. A source (GEMMs, or tiles loaded from memory) and a
// straight-line epilogue over one tile, in five kinds of primitive: elementwise, vector load and
// store, tile load and store, tile reduction, stateful. Finalizers, which combine partial
// reductions, and programs with no GEMM are Programs too.
//
// A Program is a list of steps in static single assignment: the value of step i is named by i. A
// backend may compute the steps of one *tile space* (see tile_spaces) for one tile at a time, in
// any tile order and shape, and gives the same bits.
#pragma once

#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/dim.h"
#include "coda/dtype.h"
#include "coda/elementwise.h"
#include "coda/partial.h"

namespace CODA_API coda {

// Partials of a reduction have a fixed granularity, so that every tile shape gives the same bits.
inline constexpr int64_t kPartialSpan =
    64;  // base columns (row partials) or rows (column partials) a partial covers

// Spans in which so many columns or rows are reduced, the last one ragged.
constexpr int64_t partial_spans(int64_t size) { return (size + kPartialSpan - 1) / kPartialSpan; }

// How a tensor that a program names lies in memory.
enum class TensorKind : uint8_t {
  dense,        // [rows, cols] row-major; vectors and scalars are dense too
  row_partial,  // fp32 [lanes][rows][ceil(cols/64)], where cols are the base columns of the reduced
                // tile space
  column_partial,  // fp32 [lanes][ceil(rows/64)][cols]
};

struct TensorDecl {
  std::string name;
  Shape shape;  // of a partial: [rows, base columns] (row) or [rows, cols] (column) of what was
                // reduced
  DType dtype = DType::f32;
  TensorKind kind = TensorKind::dense;
  int lanes = 1;  // of a partial

  friend bool operator==(const TensorDecl&, const TensorDecl&) = default;
};

// Rows and columns of a declared tensor in memory, as one dense matrix: [rows, cols]; a row partial
// is [lanes * rows, ceil(cols / 64)], a column partial [lanes * ceil(rows / 64), cols].
struct PhysicalShape {
  int64_t rows = 0;
  int64_t cols = 0;
};
PhysicalShape physical_shape(const TensorDecl& decl, const DimValues& sizes);

enum class StepKind : uint8_t {
  // Values.
  gemm,       // [M, N] accumulator, fp32: the sum over segments of op(A)·op(B)
  load_tile,  // [M, N]; may repeat along columns (a RoPE table for each head) and gather rows by an
              // index vector
  load_per_row,     // [M, 1]
  load_per_column,  // [1, N]
  load_scalar,      // [1, 1]
  constant,         // [1, 1]
  column_index,     // [1, N]: 0, 1, ..., N - 1
  elementwise,      // operands broadcast along unit dimensions
  split_pair,       // [M, N] -> [M, N/2]: member `which` of every pair; see `group`
  merge_pairs,      // two [M, N/2] -> [M, N]: the inverse of split_pair
  as_stored,  // the value rounded to `dtype`: what a later program will read (see docs/numerics.md)
  reduce_group,   // [M, N] -> [M, N/group]: sums over groups of columns that a tile holds whole (a
                  // head)
  repeat_group,   // [M, N/group] -> [M, N]: the adjoint of reduce_group
  select_column,  // [M, 1]: x[i, index[i]]; operands (x, index vector). Only storable
                  // (store_vector). 0 where the
                  // index lies outside [0, N)
  combine,  // finalizer: a partial tensor -> [M, 1] or [1, N]; `lane`: which result of the kind
  reduce_vector,     // finalizer: [M, 1] or [1, N] -> [1, 1], sum in a fixed order
  transpose_vector,  // finalizer: [M, 1] <-> [1, M]
  // Effects; they have no value.
  store_tile,      // operand -> tensor, rounded to nearest even
  store_vector,    // a per-row, per-column or scalar value -> tensor
  row_partial,     // operand reduced along columns, one partial for 64 base columns
  column_partial,  // operand reduced along rows, one partial for 64 rows
};

// One K segment of a GEMM: op(A)[M, K] · op(B)[K, N]. Tensor indices into Program::tensors.
struct GemmSegment {
  int a = -1;
  int b = -1;
  bool transpose_a = false;  // A is stored [K, M]
  bool transpose_b = false;  // B is stored [N, K], as torch.nn.Linear stores a weight

  friend bool operator==(const GemmSegment&, const GemmSegment&) = default;
};

struct Step {
  StepKind kind = StepKind::gemm;
  Shape shape{};                        // of the value; of an effect: of its operand
  std::vector<int> operands{};          // earlier steps
  std::vector<GemmSegment> segments{};  // gemm
  int tensor = -1;     // loads, stores, partials, combine: index into Program::tensors
  int row_index = -1;  // load_tile: an i32 [M, 1] tensor; row i of the tile is row row_index[i]
  int64_t repeat = 1;  // load_tile: the stored columns are repeated this many times, side by side
  Elementwise op = Elementwise::add;  // elementwise
  Dim group = 0;  // pairs: within each `group` columns the first half are members 0, the second
                  // half members 1 (2: interleaved; N: concatenated; head size: half-split RoPE).
                  // reduce_group, repeat_group: columns of a group
  int which = 0;  // split_pair: 0 or 1
  int lane = 0;   // combine
  double number = 0;  // constant
  PartialKind partial = PartialKind::sum;
  DType dtype = DType::f32;  // as_stored

  friend bool operator==(const Step&, const Step&) = default;
};

struct Program {
  std::string name;
  std::vector<TensorDecl> tensors;
  std::vector<Step> steps;

  friend bool operator==(const Program&, const Program&) = default;
};

// The tile-valued steps of a program fall into groups that depend on one another elementwise; each
// group is a tile space [rows, cols], whose tiles are independent. `cols` are the base columns: the
// width of its narrowest value (pairs: the half width). A value of twice that width lies in the
// tile through its pairs. Finalizer steps (vectors only) form spaces [M, 1], [1, N] and [1, 1] in
// the same way. Constants and vector loads are listed in each space that uses them.
struct TileSpace {
  Shape shape;             // [rows, base columns]
  std::vector<int> steps;  // ascending
};
std::vector<TileSpace> tile_spaces(const Program& program);

// Throws Error, naming the step and what is wrong, unless the program is well formed.
void verify(const Program& program);

// The .coda text of a program; parse_program(text(p)) == p. Errors name the line.
std::string text(const Program& program);
Program parse_program(std::string_view text);

}  // namespace CODA_API coda
